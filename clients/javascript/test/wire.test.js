// Unit tests: node --test

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Invalid } from '../src/index.js'
import { Locked, Outbox, crc32 } from '../src/outbox.js'
import { Queue } from '../src/queue.js'
import { classify, freezeEvent, jitter, retryAfter } from '../src/wire.js'

const table = new URL('../../conformance/replies.json', import.meta.url)
const replies = JSON.parse(await readFile(table, 'utf8'))

function inFolder(check) {
  return async () => {
    const folder = await mkdtemp(join(tmpdir(), 'admit-'))
    try {
      await check(join(folder, 'a.outbox'))
    } finally {
      await rm(folder, { recursive: true })
    }
  }
}

test('every reply of the table is classified as specified', () => {
  for (const reply of replies) {
    const headers = new Headers(reply.headers)
    const text = reply.text ?? JSON.stringify(reply.body)
    const event = { door: reply.door, key: reply.key }
    const found = classify(event, reply.status, (name) => headers.get(name), text)
    for (const [member, value] of Object.entries(reply.expect)) {
      const name = member === 'retry_after' ? 'retryAfter' : member
      assert.deepEqual(found[name], value, `${reply.name}: ${member}`)
    }
  }
})

test('a date of Retry-After is a number of seconds', () => {
  const date = new Date(Date.now() + 100_000).toUTCString()
  const seconds = retryAfter(() => date, {})
  assert.ok(seconds > 0 && seconds <= 100, `${seconds}`)
})

test('the pause is spread from zero to the doubled base and capped', () => {
  for (let attempt = 1; attempt < 200; attempt += 1) {
    const top = Math.min(30, 0.25 * 2 ** Math.min(attempt - 1, 60))
    assert.equal(jitter(() => 0, attempt, 0.25, 30), 0)
    assert.equal(jitter(() => 0.5, attempt, 0.25, 30), top / 2)
  }
})

test('the bytes are frozen at emit', () => {
  const data = { n: 1 }
  const event = freezeEvent(data)
  data.n = 2
  assert.equal(new TextDecoder().decode(event.body), '{"n":1}')
})

test('what JSON cannot represent is invalid', () => {
  const circle = {}
  circle.self = circle
  for (const data of [undefined, 1n, circle, () => {}, new Uint8Array([1])]) {
    assert.throws(() => freezeEvent(data), Invalid)
  }
  assert.throws(() => freezeEvent(new Uint8Array(0), { contentType: 'text/plain' }), Invalid)
})

test('the queue returns items by time', () => {
  const queue = new Queue()
  const times = Array.from({ length: 500 }, (_, n) => (n * 7919) % 503)
  for (const at of times) queue.push(at, at)
  const popped = times.map(() => queue.pop())
  assert.deepEqual(popped, [...times].sort((a, b) => a - b))
})

test('the checksum is CRC-32', () => {
  assert.equal(crc32(new TextEncoder().encode('123456789')), 0xcbf43926)
})

test('ended events are removed from the file', inFolder(async (path) => {
  const outbox = await Outbox.open(path)
  const kept = freezeEvent({ n: 0 })
  await outbox.put(kept)
  for (let n = 0; n < 40; n += 1) {
    const large = freezeEvent('x'.repeat(100_000))
    await outbox.put(large)
    await outbox.end(large.id)
  }
  await outbox.close()
  assert.ok((await stat(path)).size < 1_500_000)
  const again = await Outbox.open(path)
  assert.deepEqual([...again.live.values()].map(({ event }) => Buffer.from(event.body).toString()), ['{"n":0}'])
  await again.close()
}))

test('events that end while the file is compacted are not sent again', inFolder(async (path) => {
  const outbox = await Outbox.open(path)
  const ending = []
  for (let n = 0; n < 200; n += 1) {
    const large = freezeEvent('x'.repeat(20_000))
    ending.push(outbox.put(large).then(() => outbox.end(large.id)))
  }
  await Promise.all(ending)
  await outbox.close()
  const again = await Outbox.open(path)
  assert.equal(again.live.size, 0)
  await again.close()
}))

test('the lock of a process that ended is taken over', inFolder(async (path) => {
  await writeFile(`${path}.pid`, '1 0')
  const outbox = await Outbox.open(path)
  await assert.rejects(Outbox.open(path), Locked)
  await outbox.close()
}))
