// Driver of the conformance kit for this client: JSON lines on standard input and output.

import { createInterface } from 'node:readline'
import { Full, Invalid, LeaseLost, Refused, open } from './src/index.js'
import { Damaged, Locked } from './src/outbox.js'

const KINDS = [[Full, 'full'], [Invalid, 'invalid'], [Locked, 'locked'], [Damaged, 'damaged'], [LeaseLost, 'lease_lost'], [Refused, 'refused']]
const emissions = new Map()
let client
let events
let current

const calls = {
  hello: () => ({ client: 'javascript', abilities: ['outbox', 'background'] }),
  async open({ url, options }) {
    const named = Object.entries(options).map(([name, value]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), value])
    client = await open(url, Object.fromEntries(named))
    return {}
  },
  async emit({ door, stream, key, data, occurred_at: occurredAt }) {
    const emit = {
      events: () => client.emit(data, { stream, key: key ?? undefined, occurredAt }),
      skyra: () => client.emitSkyra(data),
      'pixel-control': () => client.emitPixelControl(data),
    }
    const emission = await emit[door]()
    emissions.set(emission.id, emission)
    return { id: emission.id, key: emission.key }
  },
  wait: ({ id, seconds }) => emissions.get(id).wait(seconds),
  flush: async ({ seconds }) => ({ pending: await client.flush(seconds) }),
  close: async ({ seconds }) => ({ pending: await client.close(seconds) }),
  rejected: () => ({ events: client.rejected().map(({ id, key }) => ({ id, key })) }),
  async discard({ id }) {
    await client.discard(id)
    return {}
  },
  consume({ inbox, stream, consumer, max }) {
    const options = { consumer, max, untilEmpty: true }
    events = inbox ? client.consumeInbox(options) : client.consume({ stream, ...options })
    return {}
  },
  async next() {
    current = (await events.next()).value
    return current ? { id: current.id, data: current.data, attempt: current.attempt } : { id: null }
  },
  async settle({ how }) {
    await current[how]()
    return {}
  },
  async stop() {
    await events.return()
    return {}
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line)
  let answer
  try {
    answer = await calls[call.do](call)
  } catch (error) {
    const kind = KINDS.find(([of]) => error instanceof of)
    if (!kind) throw error
    answer = { error: kind[1], detail: error.message }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
