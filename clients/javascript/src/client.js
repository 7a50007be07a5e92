// The producer: queue, attempts, outcomes.

import { consume } from './consumer.js'
import { NoReply, baseOf, post } from './http.js'
import { Queue } from './queue.js'
import * as wire from './wire.js'

/** The queue is full; the event was not taken. */
export class Full extends Error {}

const DEFAULTS = {
  key: undefined,
  outbox: undefined,
  horizon: undefined,
  timeout: 10,
  backoffBase: 0.25,
  backoffCap: 30,
  concurrency: 4,
  pendingMax: 10_000,
  pendingBytesMax: 64 * 1024 * 1024,
  onOutcome: undefined,
  random: Math.random,
}

/** An emitted event and what is known about it. */
export class Emission {
  constructor(event) {
    this.event = event
    this.outcome = { outcome: 'pending', reason: 'not_sent', attempts: 0, expired: false }
    this.attempts = 0
    this.settled = new Promise((resolve) => {
      this.resolve = resolve
    })
  }

  get id() {
    return this.event.id
  }

  get key() {
    return this.event.key
  }

  /** Resolves to the outcome; pending when the time is over, the event expired or the client is closed. */
  async wait(seconds) {
    await atMost(this.settled, seconds)
    return this.outcome
  }
}

/** Opens a client; with an outbox, events of an earlier process are sent at once. */
export async function open(url, options = {}) {
  const client = new Client(url, { ...DEFAULTS, ...options })
  if (options.outbox) {
    const { Outbox } = await import('./outbox.js')
    client.recover(await Outbox.open(options.outbox))
  }
  return client
}

class Client {
  #base
  #options
  #outbox
  #kept = new Map()
  #bytes = 0
  #queue = new Queue()
  #inFlight = 0
  #entering = 0
  #pausedUntil = 0
  #failedLinks = 0
  #timer
  #isClosed = false
  #waiting = new Set()

  constructor(url, options) {
    if (!(options.concurrency >= 1) || !(options.timeout > 0)) {
      throw new TypeError('concurrency and timeout must be positive')
    }
    this.#base = baseOf(url)
    this.#options = options
  }

  /** Of `open`. */
  recover(outbox) {
    this.#outbox = outbox
    for (const { event, rejected } of outbox.live.values()) {
      const emission = new Emission(event)
      this.#keep(emission)
      if (rejected) {
        emission.outcome = rejected
        emission.resolve()
      } else {
        this.#schedule(emission, 0)
      }
    }
    this.#pump()
  }

  /** Queues an event for an `events` stream; with an outbox, resolves when it is on disk. */
  async emit(data, options) {
    return this.#take(wire.freezeEvent(data, options))
  }

  /** Queues an envelope for the `skyra` door. */
  async emitSkyra(envelope, options) {
    return this.#take(wire.freezeSkyra(envelope, options))
  }

  /** Queues an envelope for the `pixel-control` door. */
  async emitPixelControl(envelope) {
    return this.#take(wire.freezePixelControl(envelope))
  }

  /** Events without a final outcome, also the expired ones. */
  pending() {
    return [...this.#kept.values()].filter((one) => one.outcome.outcome === 'pending')
  }

  /** Refused events in the outbox. */
  rejected() {
    return [...this.#kept.values()].filter((one) => one.outcome.outcome === 'rejected')
  }

  /** Removes a rejected or expired event. */
  async discard(id) {
    const emission = this.#kept.get(id)
    if (emission?.outcome.outcome !== 'rejected' && !emission?.outcome.expired) {
      throw new wire.Invalid(`${id} is neither rejected nor expired`)
    }
    await this.#remove(emission)
  }

  /** Waits until no event is queued or in flight; resolves to how many are. */
  async flush(seconds) {
    if (this.#unfinished() > 0 && !this.#isClosed) {
      let resolve
      const isIdle = new Promise((done) => {
        resolve = done
      })
      this.#waiting.add(resolve)
      await atMost(isIdle, seconds)
      this.#waiting.delete(resolve)
    }
    return this.#unfinished()
  }

  /** Flushes and ends the client; resolves to the number of events that are still pending. */
  async close(seconds = 10) {
    const left = await this.flush(seconds)
    if (this.#isClosed) return left
    this.#isClosed = true
    clearTimeout(this.#timer)
    while (this.#inFlight > 0 || this.#entering > 0) await new Promise((resolve) => this.#waiting.add(resolve))
    await this.#outbox?.close()
    for (const emission of this.#kept.values()) emission.resolve()
    return this.#unfinished()
  }

  /** Iterates over claimed events of a stream. */
  consume({ stream = 'default', ...options } = {}) {
    const { path } = wire.freezeEvent(null, { stream })
    return consume(this.#link(), path, options)
  }

  /** Iterates over claimed envelopes of the inbox. */
  consumeInbox(options = {}) {
    return consume(this.#link(), '/v1/inbox', options)
  }

  #link() {
    return { base: this.#base, headers: wire.commonHeaders(this.#options.key), ...this.#options }
  }

  async #take(event) {
    if (this.#isClosed) throw new Error('the client is closed')
    const { pendingMax, pendingBytesMax } = this.#options
    if (this.#kept.size >= pendingMax || this.#bytes + event.body.length > pendingBytesMax) {
      throw new Full(
        `${this.#kept.size} events of ${this.#bytes} bytes are queued, ${this.rejected().length} of them rejected; ` +
          'this event was not taken. Retry later, or discard the rejected ones',
      )
    }
    const emission = new Emission(event)
    this.#keep(emission)
    this.#entering += 1
    try {
      await this.#outbox?.put(event)
      this.#schedule(emission, 0)
    } catch (error) {
      this.#forget(emission)
      throw error
    } finally {
      this.#entering -= 1
      this.#changed()
    }
    this.#pump()
    return emission
  }

  #keep(emission) {
    this.#kept.set(emission.id, emission)
    this.#bytes += emission.event.body.length
  }

  #forget(emission) {
    this.#kept.delete(emission.id)
    this.#bytes -= emission.event.body.length
  }

  async #remove(emission) {
    this.#forget(emission)
    await this.#outbox?.end(emission.id)
  }

  #schedule(emission, pause) {
    this.#queue.push(now() + pause, emission)
  }

  #unfinished() {
    return this.#queue.size + this.#inFlight + this.#entering
  }

  /** Starts every attempt that is due, and sets the timer for the next. */
  #pump() {
    clearTimeout(this.#timer)
    while (!this.#isClosed && this.#inFlight < this.#options.concurrency && this.#queue.size > 0) {
      const left = Math.max(this.#queue.first(), this.#pausedUntil) - now()
      if (left > 0) {
        this.#timer = setTimeout(() => this.#pump(), Math.min(left * 1000 + 1, 2 ** 30))
        break
      }
      const emission = this.#queue.pop()
      if (!this.#expire(emission)) {
        this.#inFlight += 1
        this.#deliver(emission)
      }
    }
    this.#changed()
  }

  #expire(emission) {
    const { horizon } = this.#options
    const since = emission.event.occurred ?? emission.event.at
    if (horizon === undefined || horizon === null || Date.now() / 1000 - since < horizon) return false
    emission.outcome = { outcome: 'pending', reason: 'outside_horizon', attempts: emission.attempts, expired: true }
    emission.resolve()
    return true
  }

  async #deliver(emission) {
    const { event } = emission
    const { key, timeout } = this.#options
    let answer
    let status
    try {
      const reply = await post(this.#base + event.path, wire.requestHeaders(event, key), event.body, timeout)
      status = reply.status
      answer = wire.classify(event, status, reply.header, reply.text)
    } catch (error) {
      if (!(error instanceof NoReply)) throw error
      answer = { outcome: 'pending', reason: error.message, retryAfter: 0 }
    }
    emission.attempts += 1
    if (answer.outcome === 'pending') {
      this.#pause(answer, status)
      this.#retry(emission, answer)
    } else {
      this.#failedLinks = 0
      await this.#settle(emission, answer)
    }
    this.#inFlight -= 1
    this.#pump()
  }

  #pause(answer, status) {
    const { random, backoffBase, backoffCap } = this.#options
    let pause = 0
    if (status === undefined) {
      this.#failedLinks += 1
      pause = wire.jitter(random, this.#failedLinks, backoffBase, backoffCap)
    } else {
      this.#failedLinks = 0
      if (status === 429 || status === 503) pause = answer.retryAfter
    }
    this.#pausedUntil = Math.max(this.#pausedUntil, now() + pause)
  }

  #retry(emission, { reason, retryAfter }) {
    const { random, backoffBase, backoffCap } = this.#options
    emission.outcome = { outcome: 'pending', reason, attempts: emission.attempts, expired: false }
    this.#schedule(emission, retryAfter + wire.jitter(random, emission.attempts, backoffBase, backoffCap))
  }

  async #settle(emission, answer) {
    if (this.#outbox && answer.outcome === 'rejected') {
      await this.#outbox.reject(emission.event, answer)
    } else {
      await this.#remove(emission)
    }
    emission.outcome = answer
    emission.resolve()
    try {
      this.#options.onOutcome?.(emission.event, answer)
    } catch (error) {
      console.error(`onOutcome failed; the event ${emission.key} is ${answer.outcome}`, error)
    }
  }

  #changed() {
    const isIdle = this.#isClosed ? this.#inFlight + this.#entering === 0 : this.#unfinished() === 0
    if (!isIdle) return
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }
}

function now() {
  return performance.now() / 1000
}

async function atMost(promise, seconds) {
  if (seconds === undefined || seconds === null) return promise
  let timer
  const over = new Promise((resolve) => {
    timer = setTimeout(resolve, seconds * 1000)
  })
  await Promise.race([promise, over])
  clearTimeout(timer)
}
