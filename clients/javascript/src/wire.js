// Requests and replies of the doors: freezes events and classifies replies. No input or output.

import { randomUUID } from 'node:crypto'

export const RETRY_AFTER_MAX = 600

const KEY = /^[!#-[\]-~]{1,255}$/
const STREAM = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/

// Refusals of the sender or the address: the gate did not look at the event.
const NOT_OF_THE_EVENT = new Set(['unauthorized', 'forbidden', 'not_found', 'method_not_allowed'])

/** The event cannot be sent as it is; a retry does not help. */
export class Invalid extends Error {}

export function newId() {
  return randomUUID().replaceAll('-', '')
}

export function freezeEvent(data, { stream = 'default', key, contentType, occurredAt } = {}) {
  if (typeof stream !== 'string' || !STREAM.test(stream)) throw new Invalid(`${stream} is not the name of a stream`)
  const isBytes = data instanceof Uint8Array
  if (isBytes && !contentType) throw new Invalid('bytes need a contentType')
  const body = isBytes ? Uint8Array.from(data) : json(data)
  return frozen('events', `/v1/events/${stream}`, key ?? newId(), body, occurredAt, contentType)
}

export function freezeSkyra(envelope, { occurredAt } = {}) {
  const whole = { event_id: `evt_${newId()}`, ts: new Date().toISOString(), ...envelope }
  return frozen('skyra', '/v1/ingress', whole.event_id, json(whole), occurredAt)
}

export function freezePixelControl(envelope) {
  const occurred = envelope.source_time
  const transport = { attempt: 1, max_attempts: 1, retry_backoff_ms: 0, auth_mode: 'none' }
  const isTime = typeof occurred === 'number' && occurred > 0
  const body = json({ envelope, transport })
  return frozen('pixel-control', '/plugin/events', envelope.idempotency_key, body, isTime ? occurred : undefined)
}

// Times are in seconds since 1970.
function frozen(door, path, key, body, occurred, type = 'application/json') {
  if (typeof key !== 'string' || !KEY.test(key)) {
    throw new Invalid('a key has 1 to 255 visible ASCII characters, without quotes and backslashes')
  }
  if (body.length === 0) throw new Invalid('an event has at least one byte')
  return Object.freeze({ id: newId(), at: Date.now() / 1000, door, path, type, key, body, occurred })
}

function json(data) {
  let text
  try {
    text = JSON.stringify(data)
  } catch (error) {
    throw new Invalid(`the event is not JSON: ${error.message}`)
  }
  if (text === undefined) throw new Invalid('the event is not JSON')
  return new TextEncoder().encode(text)
}

export function requestHeaders(event, key) {
  const headers = { 'Content-Type': event.type, ...commonHeaders(key) }
  if (event.door === 'events') headers['Idempotency-Key'] = event.key
  return headers
}

export function commonHeaders(key) {
  const headers = { Accept: 'application/json', 'User-Agent': 'admit-client-javascript/0.1.0' }
  if (key) headers.Authorization = `Bearer ${key}`
  return headers
}

/** Classifies a reply. `header(name)` returns the value of a header or null. */
export function classify(event, status, header, text) {
  const reply = object(text)
  const accepted = acceptance(event, status, header, reply)
  if (accepted) return accepted
  let problem = reply.error
  let isFinalStatus = status >= 400 && status <= 499
  if (event.door === 'pixel-control' && status === 200) {
    problem = reply.ack?.status === 'rejected' ? reply.ack : undefined
    isFinalStatus = true
  }
  problem = isObject(problem) ? problem : {}
  const hasCode = typeof problem.code === 'string'
  let isFinal = isFinalStatus && problem.retryable === false && hasCode && !NOT_OF_THE_EVENT.has(problem.code)
  if (event.door === 'skyra' && (reply.event_id ?? event.key) !== event.key) isFinal = false
  if (isFinal) {
    return { outcome: 'rejected', code: problem.code, message: String(problem.message ?? ''), status }
  }
  const reason = hasCode ? problem.code : `http_${status}`
  return { outcome: 'pending', reason, retryAfter: retryAfter(header, problem) }
}

function acceptance(event, status, header, reply) {
  if (event.door === 'events') {
    const isReceipt = typeof reply.receipt_id === 'string' && typeof reply.key === 'string'
    if (!isReceipt || (status !== 200 && status !== 201)) return undefined
    const duplicate = (header('idempotent-replayed') ?? '').toLowerCase() === 'true'
    return { outcome: 'accepted', duplicate, receipt: reply }
  }
  if (status !== 200) return undefined
  if (event.door === 'skyra') {
    const isAck = reply.status === 'stored' && reply.event_id === event.key
    return isAck ? { outcome: 'accepted', duplicate: null, receipt: reply } : undefined
  }
  const isAck = reply.ack?.status === 'accepted' && reply.ack.idempotency_key === event.key
  return isAck ? { outcome: 'accepted', duplicate: reply.ack.disposition === 'duplicate', receipt: reply } : undefined
}

/** The least pause that a reply demands, in seconds. */
export function retryAfter(header, problem) {
  const text = header('retry-after')?.trim()
  let seconds = problem.retry_after_seconds
  if (text !== undefined && /^[0-9]{1,15}$/.test(text)) {
    seconds = Number(text)
  } else if (text !== undefined && /[A-Za-z]{3}.*:/.test(text) && !Number.isNaN(Date.parse(text))) {
    seconds = (Date.parse(text) - Date.now()) / 1000
  }
  return typeof seconds === 'number' ? Math.min(Math.max(seconds, 0), RETRY_AFTER_MAX) : 0
}

/** Full jitter: even between 0 and the doubled base, limited by the cap. Seconds. */
export function jitter(random, attempt, base, cap) {
  return random() * Math.min(cap, base * 2 ** Math.min(attempt - 1, 60))
}

export function object(text) {
  try {
    const value = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
