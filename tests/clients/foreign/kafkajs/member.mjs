// A member of a group with kafkajs: tells on stdout what happens to it, and leaves when stdin ends.
import kafkajs from 'kafkajs'

const { AssignerProtocol, Kafka, logLevel } = kafkajs
const { MemberAssignment, MemberMetadata } = AssignerProtocol

const asked = JSON.parse(process.argv[2])
const tell = event => process.stdout.write(`${JSON.stringify({ at: Date.now(), ...event })}\n`)

// The assignor that all other clients have too; kafkajs brings only one of its own.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members, topics }) {
    const memberIds = members.map(({ memberId }) => memberId).sort()
    const share = (topic, index) => {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(each => each.partitionId)
      partitions.sort((one, other) => one - other)
      const [least, more] = [Math.floor(partitions.length / memberIds.length), partitions.length % memberIds.length]
      const first = index * least + Math.min(index, more)
      return partitions.slice(first, first + least + (index < more ? 1 : 0))
    }
    return memberIds.map((memberId, index) => {
      const assignment = Object.fromEntries(topics.map(topic => [topic, share(topic, index)]))
      return { memberId, memberAssignment: MemberAssignment.encode({ version: 0, assignment, userData: Buffer.alloc(0) }) }
    })
  },
  protocol({ topics }) {
    return { name: 'range', metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }) }
  },
})

const kafka = new Kafka({
  brokers: [asked.bootstrap],
  clientId: 'kafkajs',
  logLevel: logLevel.WARN,
  logCreator: () => entry => console.error(JSON.stringify(entry)),
  // It has to live through a broker that is away for a while.
  retry: { retries: 20, initialRetryTime: 100, maxRetryTime: 1_000 },
})
const consumer = kafka.consumer({
  groupId: asked.group,
  sessionTimeout: asked.session_timeout_ms,
  heartbeatInterval: asked.heartbeat_interval_ms,
  partitionAssigners: [range],
  maxWaitTimeInMs: 200,
})

let owned = []
const release = event => {
  if (owned.length > 0) tell({ event, partitions: owned })
  owned = []
}
consumer.on(consumer.events.REBALANCING, () => release('revoked'))
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  // Whoever joins again without having been told of a rebalance had been expelled.
  release('lost')
  owned = payload.memberAssignment[asked.topic] ?? []
  tell({ event: 'assigned', partitions: owned })
})

process.stdin.resume().on('end', async () => {
  await consumer.stop()
  release('revoked')
  await consumer.disconnect()
  process.exit(0)
})

await consumer.connect()
await consumer.subscribe({ topic: asked.topic, fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch: { partition, messages }, resolveOffset }) => {
    for (const { offset } of messages) {
      tell({ event: 'read', partition, offset: Number(offset) })
      resolveOffset(offset)
    }
    const next = Number(messages.at(-1).offset) + 1
    await consumer.commitOffsets([{ topic: asked.topic, partition, offset: String(next) }])
    tell({ event: 'committed', offsets: { [partition]: next } })
  },
})
