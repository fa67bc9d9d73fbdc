// A member of a group with @platformatic/kafka: tells on stdout what happens to it, and leaves when stdin ends.
import { Consumer } from '@platformatic/kafka'

const asked = JSON.parse(process.argv[2])
const tell = event => process.stdout.write(`${JSON.stringify({ at: Date.now(), ...event })}\n`)

const consumer = new Consumer({
  clientId: 'platformatic',
  bootstrapBrokers: [asked.bootstrap],
  groupId: asked.group,
  groupProtocol: asked.protocol,
  // With the new protocol both are for the coordinator to say.
  ...(asked.protocol === 'classic' && {
    sessionTimeout: asked.session_timeout_ms,
    heartbeatInterval: asked.heartbeat_interval_ms,
  }),
  autocommit: false,
  maxWaitTime: 200,
})

let owned = []
const release = event => {
  if (owned.length > 0) tell({ event, partitions: owned })
  owned = []
}
consumer.on('consumer:group:rebalance', () => release('revoked'))
consumer.on('consumer:group:join', ({ assignments }) => {
  release('lost')
  // In the new protocol partitions come later, and without an event.
  owned = assignments?.find(({ topic }) => topic === asked.topic)?.partitions ?? []
  tell({ event: 'assigned', partitions: owned })
})

const stream = await consumer.consume({ topics: [asked.topic], mode: 'committed', fallbackMode: 'earliest' })
process.stdin.resume().on('end', async () => {
  // The stream may be about to fetch once more, and nobody catches that the client is closed by then.
  process.on('uncaughtException', error => {
    if (error.message !== 'Client is closed.') throw error
  })
  release('revoked')
  await consumer.close(true)
  process.exit(0)
})
for await (const message of stream) {
  const { partition, offset } = message
  tell({ event: 'read', partition, offset: Number(offset) })
  await message.commit()
  tell({ event: 'committed', offsets: { [partition]: Number(offset) + 1 } })
}
