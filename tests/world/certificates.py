"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2")


class Authority:
    """Who vouches for the certificates of one test; the files are kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._folder = folder
        self._made = 0
        command = ("req", "-x509", *_CURVE, "-nodes", "-subj", "/CN=authority")
        self._openssl(*command, "-keyout", self._path("ca.key"), "-out", self._path("ca.pem"))
        self.certificate = (folder / "ca.pem").read_text()

    def identity(self, name: str, *, subject: str | None = None, password: str | None = None) -> str:
        """A key and a certificate for loopback, both in one text; by default its subject is CN=`name`."""
        key, chain = self.key_and_chain(name, subject=subject, password=password)
        return key + chain

    def key_and_chain(
        self, name: str, *, subject: str | None = None, password: str | None = None
    ) -> tuple[str, str]:
        """The same in two texts."""
        self._made += 1
        stem = self._path(f"{self._made}-{name}")
        secret = ("-nodes",) if password is None else ("-passout", f"pass:{password}")
        names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self._openssl(
            *("req", *_CURVE, *secret, "-utf8", "-subj", subject or f"/CN={name}", *names),
            *("-keyout", f"{stem}.key", "-out", f"{stem}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{stem}.csr", "-copy_extensions", "copy", "-days", "2"),
            *("-CA", self._path("ca.pem"), "-CAkey", self._path("ca.key"), "-CAcreateserial"),
            *("-out", f"{stem}.pem"),
        )
        return Path(f"{stem}.key").read_text(), Path(f"{stem}.pem").read_text()

    def _path(self, name: str) -> str:
        return str(self._folder / name)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
