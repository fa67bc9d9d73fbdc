package org.slf4j.impl;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import org.slf4j.ILoggerFactory;
import org.slf4j.Logger;
import org.slf4j.helpers.FormattingTuple;
import org.slf4j.helpers.MessageFormatter;
import org.slf4j.spi.LoggerFactoryBinder;

/** Prints errors that are logged to stderr, and nothing else; SLF4J 1.7 finds it by this name. */
public final class StaticLoggerBinder implements LoggerFactoryBinder {
    private static final StaticLoggerBinder SINGLETON = new StaticLoggerBinder();

    public static StaticLoggerBinder getSingleton() {
        return SINGLETON;
    }

    @Override
    public ILoggerFactory getLoggerFactory() {
        return StaticLoggerBinder::logger;
    }

    @Override
    public String getLoggerFactoryClassStr() {
        return StaticLoggerBinder.class.getName();
    }

    private static Logger logger(String name) {
        Class<?>[] interfaces = {Logger.class};
        return (Logger) Proxy.newProxyInstance(Logger.class.getClassLoader(), interfaces, (logger, method, given) ->
            switch (method.getName()) {
                case "getName", "toString" -> name;
                case "error" -> print(given);
                default -> method.getReturnType() == boolean.class ? method.getName().equals("isErrorEnabled") : null;
            });
    }

    /** What is given is a message, and perhaps what to put into it, one by one or in an array. */
    private static Object print(Object[] given) {
        Object[] rest = given.length == 2 && given[1] instanceof Object[] array
            ? array
            : Arrays.copyOfRange(given, 1, given.length);
        FormattingTuple message = MessageFormatter.arrayFormat((String) given[0], rest);
        StringWriter text = new StringWriter();
        text.write(message.getMessage() + "\n");
        if (message.getThrowable() != null) {
            message.getThrowable().printStackTrace(new PrintWriter(text, true));
        }
        System.err.print(text);
        return null;
    }
}
