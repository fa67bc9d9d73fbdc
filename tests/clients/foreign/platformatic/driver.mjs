// The @platformatic/kafka client, asked on stdin and answering on stdout, one line of JSON each.
//
// Its streams read only as members of a group; its public fetch reads any partition, and is what reads here.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import {
  Admin,
  ConfigResourceTypes,
  Consumer,
  IncrementalAlterConfigOperationTypes,
  ListOffsetTimestamps,
  Producer,
  UnsupportedCompressionError,
  defaultPartitioner,
} from '@platformatic/kafka'

const NO_CODE = -1
const UNKNOWN_OFFSET = -1
// Larger than any batch that is asked for.
const FETCH_BYTES_MAX = 8 * 2 ** 20
const IS_LOG_APPEND_TIME = 8
const IS_CONTROL = 32

class Unsupported extends Error {}
const UNSUPPORTED = [Unsupported, UnsupportedCompressionError]

const connection = {
  clientId: 'platformatic',
  bootstrapBrokers: [process.argv[2]],
  timeout: 30_000,
  retries: 3,
  retryDelay: 200,
}

const operations = {
  create_topic: ({ topic, partitions, replication_factor = -1, configs }) =>
    using(new Admin(connection), async admin => {
      await admin.createTopics({
        topics: [topic],
        partitions,
        replicas: replication_factor,
        configs: Object.entries(configs).map(([name, value]) => ({ name, value })),
      })
      return {}
    }),

  describe_topic: ({ topic }) =>
    using(new Admin(connection), async admin => {
      const metadata = await admin.metadata({ topics: [topic] })
      const leaders = metadata.topics.get(topic).partitions.map(each => each.leader)
      return { partitions: leaders.length, leaders }
    }),

  list_topics: () => using(new Admin(connection), async admin => ({ topics: await admin.listTopics() })),

  describe_configs: ({ topic }) =>
    using(new Admin(connection), async admin => {
      const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }]
      const [{ configs }] = await admin.describeConfigs({ resources })
      return { configs: Object.fromEntries(configs.map(({ name, value }) => [name, value])) }
    }),

  alter_configs: ({ topic, configs }) =>
    using(new Admin(connection), async admin => {
      const configOperation = IncrementalAlterConfigOperationTypes.SET
      const changes = Object.entries(configs).map(([name, value]) => ({ name, value, configOperation }))
      const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs: changes }
      await admin.incrementalAlterConfigs({ resources: [resource] })
      return {}
    }),

  create_partitions: ({ topic, total }) =>
    using(new Admin(connection), async admin => {
      await admin.createPartitions({ topics: [{ name: topic, count: total, assignments: null }] })
      return {}
    }),

  delete_topic: ({ topic }) =>
    using(new Admin(connection), async admin => {
      await admin.deleteTopics({ topics: [topic] })
      return {}
    }),

  delete_records: ({ topic, partition, before_offset }) =>
    using(new Admin(connection), async admin => {
      const partitions = [{ partition, offset: BigInt(before_offset) }]
      const [deleted] = await admin.deleteRecords({ topics: [{ name: topic, partitions }] })
      return { low_watermark: Number(deleted.partitions[0].lowWatermark) }
    }),

  produce: async ({ topic, records, codec, acks, idempotent }) => {
    const messages = records.map(record => messageFor(topic, record))
    return using(new Producer({ ...connection, autocreateTopics: true }), async producer => {
      const metadata = await producer.metadata({ topics: [topic], autocreateTopics: true })
      const { partitionsCount } = metadata.topics.get(topic)
      if (messages.some(each => each.partition >= partitionsCount)) {
        throw new Unsupported('the client takes the remainder of a partition that is not there')
      }
      const { offsets = [] } = await producer.send({ messages, compression: codec, acks, idempotent })
      const nextOffsets = new Map(offsets.map(each => [each.partition, Number(each.offset)]))
      return {
        results: choices(messages, partitionsCount).map(partition => {
          const offset = nextOffsets.get(partition) ?? UNKNOWN_OFFSET
          if (offset !== UNKNOWN_OFFSET) nextOffsets.set(partition, offset + 1)
          return { partition, offset }
        }),
      }
    })
  },

  consume: async ({ topic, partition, offset, count, timeout_ms }) => {
    const ends = { earliest: ListOffsetTimestamps.EARLIEST, latest: ListOffsetTimestamps.LATEST }
    const start = offset in ends ? await findOffset(topic, partition, ends[offset]) : offset
    return { records: await read({ topic, partition, start, count, timeout_ms }) }
  },

  consume_from_time: async ({ topic, partition, timestamp, count, timeout_ms }) => {
    const start = await findOffset(topic, partition, timestamp)
    if (start < 0) return { offset: start, records: [] }
    return { offset: start, records: await read({ topic, partition, start, count, timeout_ms }) }
  },

  list_offsets: async ({ topic, partition }) => ({
    earliest: await findOffset(topic, partition, ListOffsetTimestamps.EARLIEST),
    latest: await findOffset(topic, partition, ListOffsetTimestamps.LATEST),
  }),

  offset_for_time: async ({ topic, partition, timestamp }) => ({
    offset: await findOffset(topic, partition, timestamp),
  }),

  describe_cluster: () =>
    using(new Admin(connection), async admin => {
      const { id, controllerId, brokers } = await admin.metadata({ topics: [] })
      const nodes = [...brokers].map(([nodeId, { host, port }]) => ({ id: nodeId, host, port }))
      return { cluster_id: id, controller_id: controllerId, nodes }
    }),
}

async function using(client, work) {
  try {
    return await work(client)
  } finally {
    await client.close()
  }
}

function findOffset(topic, partition, timestamp) {
  return using(new Admin(connection), async admin => {
    const partitions = [{ partitionIndex: partition, timestamp: BigInt(timestamp) }]
    const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
    return Number(found.partitions[0].offset)
  })
}

function read({ topic, partition, start, count, timeout_ms }) {
  const deadline = Date.now() + timeout_ms
  return using(new Consumer({ ...connection, groupId: 'never-joined' }), async consumer => {
    const { id, partitions } = (await consumer.metadata({ topics: [topic] })).topics.get(topic)
    if (!partitions[partition]) throw new Error(`Unknown partition ${partition}`)
    const { leader, leaderEpoch } = partitions[partition]
    const found = []
    let fetchOffset = BigInt(start)
    while (found.length < count && Date.now() < deadline) {
      const place = {
        partition,
        fetchOffset,
        currentLeaderEpoch: leaderEpoch,
        lastFetchedEpoch: -1,
        partitionMaxBytes: FETCH_BYTES_MAX,
      }
      const { responses } = await consumer.fetch({
        node: leader,
        topics: [{ topicId: id, partitions: [place] }],
        minBytes: 1,
        maxBytes: FETCH_BYTES_MAX,
        maxWaitTime: Math.min(500, Math.max(1, deadline - Date.now())),
      })
      for (const batch of responses[0]?.partitions[0].records ?? []) {
        found.push(...recordsFrom(batch, partition).filter(record => record.offset >= fetchOffset))
        fetchOffset = batch.firstOffset + BigInt(batch.lastOffsetDelta) + 1n
      }
    }
    return found.slice(0, count)
  })
}

// A fetched batch is as it was on the wire: the first may begin before the offset that was asked for.
function recordsFrom(batch, partition) {
  if (batch.attributes & IS_CONTROL) return []
  return batch.records.map(record => ({
    partition,
    offset: Number(batch.firstOffset) + record.offsetDelta,
    timestamp: Number(
      batch.attributes & IS_LOG_APPEND_TIME ? batch.maxTimestamp : batch.firstTimestamp + record.timestampDelta,
    ),
    key: toBase64(record.key),
    value: toBase64(record.value),
    headers: record.headers.map(([name, data]) => [name.toString(), toBase64(data)]),
  }))
}

// Names of headers are buffers, which a Map tells apart even if they say the same.
function messageFor(topic, { partition, key, value, headers = [], timestamp }) {
  return {
    topic,
    partition,
    key: fromBase64(key),
    value: fromBase64(value),
    headers: new Map(headers.map(([name, data]) => [Buffer.from(name), fromBase64(data)])),
    timestamp: timestamp === undefined ? undefined : BigInt(timestamp),
  }
}

// The client tells the offsets of a send by partition, but not which record went where: this says it again. Records
// without a key take partitions in turn, from the first.
function choices(messages, partitionsCount) {
  let turn = 0
  return messages.map(({ partition, key }) => {
    if (partition !== undefined) return partition
    return (key === null ? turn++ : defaultPartitioner(null, key)) % partitionsCount
  })
}

const fromBase64 = text => (text == null ? null : Buffer.from(text, 'base64'))
const toBase64 = data => (data == null ? null : data.toString('base64'))

// What the broker said is among what the client made of it, except for one thing that it says in its own words.
function described(error) {
  const all = flattened(error)
  const { apiCode: code, apiId: name, serverErrorMessage } = all.find(each => each.apiCode > 0) ?? {}
  if (code) return { code, name, message: serverErrorMessage ?? error.message }
  const { message } = all.at(-1)
  if (/^Unknown (topic|partition) /.test(message)) return { code: 3, name: 'UNKNOWN_TOPIC_OR_PARTITION', message }
  return { code: NO_CODE, name: all.at(-1).code ?? all.at(-1).name, message }
}

const flattened = error => [error, ...[...(error.errors ?? []), error.cause].filter(Boolean).flatMap(flattened)]

async function answer({ id, op, ...asked }) {
  if (!(op in operations)) return { id, unsupported: `the driver has no operation ${op}` }
  try {
    return { id, ok: await operations[op](asked) }
  } catch (error) {
    console.error(error)
    const reason = flattened(error).find(each => UNSUPPORTED.some(kind => each instanceof kind))
    return reason ? { id, unsupported: reason.message } : { id, error: described(error) }
  }
}

const reply = line => process.stdout.write(`${JSON.stringify(line)}\n`)

const manifest = new URL('./node_modules/@platformatic/kafka/package.json', import.meta.url)
reply({ ready: true, version: JSON.parse(readFileSync(manifest)).version })
for await (const line of createInterface({ input: process.stdin })) reply(await answer(JSON.parse(line)))
