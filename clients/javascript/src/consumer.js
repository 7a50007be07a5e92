// The consumer: claims events, iterates over them and settles them.

import { NoReply, post, sleep } from './http.js'
import { isObject, jitter, object, retryAfter } from './wire.js'

/** The lease does not hold the event any more; another consumer may have it. */
export class LeaseLost extends Error {}

/** The gate refused a request of a consumer; a retry does not help. */
export class Refused extends Error {
  constructor(code, message, status) {
    super(`${code}: ${message}`)
    this.code = code
    this.status = status
  }
}

/** An event that is leased to this consumer. `data` is the payload of an inbox entry. */
export class Claimed {
  #link
  #path
  #leaseSeconds
  #expires

  constructor(link, path, entry, leaseSeconds) {
    this.#link = link
    this.#path = path
    this.#leaseSeconds = leaseSeconds
    this.#expires = endOf(entry.lease_expires_at, leaseSeconds)
    this.entry = entry
    this.id = entry.event_id ?? entry.receipt_id
    this.data = entry.data ?? entry.payload
    this.attempt = entry.attempt ?? 1
  }

  /** Finished. */
  ack() {
    return this.#settle('done')
  }

  /** Finished without success; not handed out again. */
  fail() {
    return this.#settle('failed')
  }

  /** Available again at once. */
  release() {
    return this.#settle('released')
  }

  /** Leased for another `leaseSeconds` from now. */
  extend() {
    return this.#settle('extended')
  }

  async #settle(status) {
    const change = { status, lease: this.entry.lease }
    if (status === 'extended') change.lease_seconds = this.#leaseSeconds
    const answer = await call(this.#link, `${this.#path}/${encodeURIComponent(this.id)}`, change, this.#expires)
    if (status === 'extended') this.#expires = endOf(answer.lease_expires_at, this.#leaseSeconds)
  }
}

/** Iterates over claimed events; those that were not handed out are released at the end. */
export async function* consume(link, path, options) {
  const { consumer = 'javascript', max = 10, leaseSeconds = 60, poll = 1, untilEmpty = false } = options
  let waiting = []
  try {
    for (;;) {
      const wanted = { consumer, max, lease_seconds: leaseSeconds }
      const { events = [] } = await call(link, `${path}/claim`, wanted, Infinity)
      waiting = events.map((entry) => new Claimed(link, path, entry, leaseSeconds))
      if (waiting.length === 0 && untilEmpty) return
      if (waiting.length === 0) await sleep(link.random() * poll)
      while (waiting.length > 0) yield waiting.shift()
    }
  } finally {
    for (const claimed of waiting) {
      await claimed.release().catch((error) => {
        if (!(error instanceof LeaseLost) && !(error instanceof Refused)) throw error
      })
    }
  }
}

/** Repeats a request after faults until the deadline, in milliseconds of `performance.now`. */
async function call(link, path, content, deadline) {
  const headers = { ...link.headers, 'Content-Type': 'application/json' }
  const body = JSON.stringify(content)
  for (let attempt = 1; performance.now() < deadline; attempt += 1) {
    let least = 0
    try {
      const reply = await post(link.base + path, headers, body, link.timeout)
      const answer = object(reply.text)
      if (reply.status === 200 && Object.keys(answer).length > 0) return answer
      const problem = isObject(answer.error) ? answer.error : {}
      if (reply.status >= 400 && reply.status <= 499 && problem.retryable === false) refuse(reply.status, problem)
      least = retryAfter(reply.header, problem)
    } catch (error) {
      if (!(error instanceof NoReply)) throw error
    }
    const pause = least + jitter(link.random, attempt, link.backoffBase, link.backoffCap)
    await sleep(Math.max(0, Math.min(pause, (deadline - performance.now()) / 1000)))
  }
  throw new LeaseLost('the lease expired before the gate confirmed the change; claim the event again')
}

function refuse(status, { code, message }) {
  if (code === 'lease_lost') throw new LeaseLost(message)
  throw new Refused(String(code), String(message ?? ''), status)
}

/** End of a lease: the earlier of the gate's time and the requested length. */
function endOf(text, leaseSeconds) {
  const left = Date.parse(text) - Date.now()
  return performance.now() + Math.min(Number.isNaN(left) ? Infinity : left, leaseSeconds * 1000)
}
