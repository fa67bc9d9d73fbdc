// The kafkajs client, asked on stdin and answering on stdout, one line of JSON each.
//
// kafkajs reads only as a member of a group, so reading here uses what lies below its consumer: the cluster, which
// knows leaders and offsets, the broker's fetch, and the batch that drops what was not asked for.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import zstd from '@bokuweb/zstd-wasm'
import { lz4Compress, lz4Decompress } from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import Cluster from 'kafkajs/src/cluster/index.js'
import Batch from 'kafkajs/src/consumer/batch.js'
import createSocketFactory from 'kafkajs/src/network/socketFactory.js'
import snappy from 'kafkajs-snappy'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs

const NO_CODE = -1
const UNKNOWN_OFFSET = -1
// Larger than any batch that is asked for.
const FETCH_BYTES_MAX = 8 * 2 ** 20
const SET_ON_TOPIC = 1
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// kafkajs brings gzip only, and is given the others.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4Compress(encoder.buffer),
  decompress: async data => lz4Decompress(data),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async data => Buffer.from(zstd.decompress(data)),
})

class Unsupported extends Error {}

const connection = {
  brokers: [process.argv[2]],
  clientId: 'kafkajs',
  connectionTimeout: 5_000,
  requestTimeout: 30_000,
  retry: { retries: 5, initialRetryTime: 100 },
}
const kafka = new Kafka({
  ...connection,
  logLevel: logLevel.WARN,
  logCreator: () => entry => console.error(JSON.stringify(entry)),
})

const operations = {
  create_topic: ({ topic, partitions, replication_factor = -1, configs }) =>
    withAdmin(async admin => {
      const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
      const wanted = { topic, numPartitions: partitions, replicationFactor: replication_factor, configEntries }
      const isCreated = await admin.createTopics({ topics: [wanted] })
      // This error kafkajs tells by its result.
      if (!isCreated) throw kafkaError(36, 'TOPIC_ALREADY_EXISTS')
      return {}
    }),

  describe_topic: ({ topic }) =>
    withAdmin(async admin => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      const partitions = topics[0].partitions.sort((one, other) => one.partitionId - other.partitionId)
      return { partitions: partitions.length, leaders: partitions.map(each => each.leader) }
    }),

  list_topics: () => withAdmin(async admin => ({ topics: await admin.listTopics() })),

  describe_configs: ({ topic }) =>
    withAdmin(async admin => {
      const entries = await topicConfigs(admin, topic)
      return { configs: Object.fromEntries(entries.map(each => [each.configName, each.configValue])) }
    }),

  // kafkajs replaces a topic's settings as a whole, so what was set before is sent along.
  alter_configs: ({ topic, configs }) =>
    withAdmin(async admin => {
      const kept = (await topicConfigs(admin, topic)).filter(each => each.configSource === SET_ON_TOPIC)
      const wanted = { ...Object.fromEntries(kept.map(each => [each.configName, each.configValue])), ...configs }
      const configEntries = Object.entries(wanted).map(([name, value]) => ({ name, value }))
      await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
      return {}
    }),

  create_partitions: ({ topic, total }) =>
    withAdmin(async admin => {
      await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
      return {}
    }),

  delete_topic: ({ topic }) =>
    withAdmin(async admin => {
      await admin.deleteTopics({ topics: [topic] })
      return {}
    }),

  // kafkajs does not pass on the low watermark it is answered with, so it is asked for before and after.
  delete_records: ({ topic, partition, before_offset }) =>
    withAdmin(async admin => {
      await admin.fetchTopicOffsets(topic)
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before_offset) }] })
      const offsets = await admin.fetchTopicOffsets(topic)
      return { low_watermark: Number(offsets.find(each => each.partition === partition).low) }
    }),

  produce: async ({ topic, records, codec, acks, idempotent }) => {
    const messages = records.map(messageFor)
    const chosen = new Map()
    const producer = kafka.producer({ idempotent, createPartitioner: () => rememberingPartitioner(chosen) })
    await producer.connect()
    try {
      const written = await producer.send({ topic, messages, acks, compression: CODECS[codec] })
      const nextOffsets = new Map((written ?? []).map(each => [each.partition, Number(each.baseOffset)]))
      if (acks !== 0 && messages.some(message => !nextOffsets.has(chosen.get(message)))) {
        throw new Unsupported('kafkajs drops records for a partition that is not there, and does not tell')
      }
      return {
        results: messages.map(message => {
          const partition = chosen.get(message)
          const offset = nextOffsets.get(partition) ?? UNKNOWN_OFFSET
          if (offset !== UNKNOWN_OFFSET) nextOffsets.set(partition, offset + 1)
          return { partition, offset }
        }),
      }
    } finally {
      await producer.disconnect()
    }
  },

  consume: ({ topic, partition, offset, count, timeout_ms }) =>
    withCluster(topic, async cluster => {
      const ends = { earliest: { fromBeginning: true }, latest: { fromBeginning: false } }
      const start = ends[offset] ? await findOffset(cluster, topic, partition, ends[offset]) : offset
      return { records: await read(cluster, { topic, partition, start, count, timeout_ms }) }
    }),

  consume_from_time: ({ topic, partition, timestamp, count, timeout_ms }) =>
    withCluster(topic, async cluster => {
      const start = await findOffset(cluster, topic, partition, { fromTimestamp: timestamp })
      if (start < 0) return { offset: start, records: [] }
      return { offset: start, records: await read(cluster, { topic, partition, start, count, timeout_ms }) }
    }),

  list_offsets: ({ topic, partition }) =>
    withCluster(topic, async cluster => ({
      earliest: await findOffset(cluster, topic, partition, { fromBeginning: true }),
      latest: await findOffset(cluster, topic, partition, { fromBeginning: false }),
    })),

  offset_for_time: ({ topic, partition, timestamp }) =>
    withCluster(topic, async cluster => ({
      offset: await findOffset(cluster, topic, partition, { fromTimestamp: timestamp }),
    })),

  describe_cluster: () =>
    withAdmin(async admin => {
      const { brokers, controller, clusterId } = await admin.describeCluster()
      const nodes = brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port }))
      return { cluster_id: clusterId, controller_id: controller, nodes }
    }),
}

// An admin remembers every topic it was asked about, and fails once one of them is gone: hence a new one each time.
async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function withCluster(topic, work) {
  const cluster = new Cluster({
    ...connection,
    logger: kafka.logger(),
    socketFactory: createSocketFactory(),
    enforceRequestTimeout: true,
    metadataMaxAge: 300_000,
    allowAutoTopicCreation: false,
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    return await work(cluster)
  } finally {
    await cluster.disconnect()
  }
}

async function topicConfigs(admin, topic) {
  const wanted = { type: ConfigResourceTypes.TOPIC, name: topic }
  const { resources } = await admin.describeConfigs({ resources: [wanted], includeSynonyms: false })
  return resources[0].configEntries
}

async function findOffset(cluster, topic, partition, position) {
  const [found] = await cluster.fetchTopicsOffset([{ topic, partitions: [{ partition }], ...position }])
  // kafkajs leaves out what has no leader.
  if (!found) throw kafkaError(3, 'UNKNOWN_TOPIC_OR_PARTITION')
  return Number(found.partitions[0].offset)
}

async function read(cluster, { topic, partition, start, count, timeout_ms }) {
  const deadline = Date.now() + timeout_ms
  const [nodeId] = Object.keys(cluster.findLeaderForPartitions(topic, [partition]))
  if (!nodeId) throw kafkaError(3, 'UNKNOWN_TOPIC_OR_PARTITION')
  const broker = await cluster.findBroker({ nodeId })
  const found = []
  let fetchOffset = start
  while (found.length < count && Date.now() < deadline) {
    const { responses } = await broker.fetch({
      maxWaitTime: Math.min(500, Math.max(1, deadline - Date.now())),
      maxBytes: FETCH_BYTES_MAX,
      topics: [{ topic, partitions: [{ partition, fetchOffset: String(fetchOffset), maxBytes: FETCH_BYTES_MAX }] }],
    })
    const batch = new Batch(topic, String(fetchOffset), responses[0].partitions[0])
    found.push(...batch.messages.map(message => recordFrom(partition, message)))
    if (batch.rawMessages.length > 0) fetchOffset = Number(batch.lastOffset()) + 1
  }
  return found.slice(0, count)
}

function rememberingPartitioner(chosen) {
  const choose = Partitioners.DefaultPartitioner()
  return asked => {
    const partition = choose(asked)
    chosen.set(asked.message, partition)
    return partition
  }
}

// Headers are an object in kafkajs: the values of one name stand together, and none of them is null.
function messageFor({ partition, key, value, headers = [], timestamp }) {
  const byName = {}
  let lastName = null
  for (const [name, data] of headers) {
    if (data === null) throw new Unsupported('kafkajs cannot write a header without a value')
    if (name in byName && name !== lastName) throw new Unsupported('kafkajs groups headers by their names')
    byName[name] = [...(byName[name] ?? []), fromBase64(data)]
    lastName = name
  }
  return {
    partition,
    key: fromBase64(key),
    value: fromBase64(value),
    headers: byName,
    timestamp: timestamp === undefined ? undefined : String(timestamp),
  }
}

function recordFrom(partition, { offset, timestamp, key, value, headers }) {
  const names = Object.keys(headers)
  if (names.length > 1 && names.some(name => Array.isArray(headers[name]))) {
    throw new Unsupported('kafkajs groups headers by their names, so their order is not known')
  }
  return {
    partition,
    offset: Number(offset),
    timestamp: Number(timestamp),
    key: toBase64(key),
    value: toBase64(value),
    headers: names.flatMap(name => [headers[name]].flat().map(data => [name, toBase64(data)])),
  }
}

const fromBase64 = text => (text == null ? null : Buffer.from(text, 'base64'))
const toBase64 = data => (data == null ? null : data.toString('base64'))

const kafkaError = (code, type) => Object.assign(new Error(type), { code, type })

// What the broker said is wrapped in what kafkajs made of it.
function described(error) {
  const inner = error.errors?.[0] ?? error.partitions?.[0]?.error ?? error.cause
  if (inner) return described(inner)
  return { code: error.type ? error.code : NO_CODE, name: error.type ?? error.name, message: error.message }
}

async function answer({ id, op, ...asked }) {
  if (!(op in operations)) return { id, unsupported: `the driver has no operation ${op}` }
  try {
    return { id, ok: await operations[op](asked) }
  } catch (error) {
    if (error instanceof Unsupported) return { id, unsupported: error.message }
    console.error(error)
    return { id, error: described(error) }
  }
}

const reply = line => process.stdout.write(`${JSON.stringify(line)}\n`)

await zstd.init()
const { version } = JSON.parse(readFileSync(new URL('./node_modules/kafkajs/package.json', import.meta.url)))
reply({ ready: true, version })
for await (const line of createInterface({ input: process.stdin })) reply(await answer(JSON.parse(line)))
