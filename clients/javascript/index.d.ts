/** Client of Admit, the front door for events. Times are in seconds. */

export interface Accepted {
  outcome: 'accepted'
  /** null where the door does not say. */
  duplicate: boolean | null
  /** Reply of the gate. */
  receipt: Record<string, unknown>
}

export interface Rejected {
  outcome: 'rejected'
  code: string
  message: string
  status: number
}

export interface Pending {
  outcome: 'pending'
  /** Of the last attempt. */
  reason: string
  attempts: number
  /** Older than the horizon: not sent again. */
  expired: boolean
}

export type Outcome = Accepted | Rejected | Pending

/** An event as it is sent, the same at every attempt. */
export interface Frozen {
  readonly id: string
  readonly at: number
  readonly door: 'events' | 'skyra' | 'pixel-control'
  readonly path: string
  readonly type: string
  readonly key: string
  readonly body: Uint8Array
  readonly occurred?: number
}

export interface Emission {
  readonly event: Frozen
  readonly id: string
  readonly key: string
  readonly outcome: Outcome
  /** Resolves to the outcome; pending when the time is over or the event expired. */
  wait(seconds?: number): Promise<Outcome>
}

export interface Options {
  /** API key. */
  key?: string
  /** Path of the durable outbox (Node.js). */
  outbox?: string
  /** Age above which an event is not sent; none by default. */
  horizon?: number
  /** Of an attempt; 10. */
  timeout?: number
  /** 0.25. */
  backoffBase?: number
  /** 30. */
  backoffCap?: number
  /** Attempts at a time; 4. */
  concurrency?: number
  /** 10,000. */
  pendingMax?: number
  /** 64 MiB. */
  pendingBytesMax?: number
  /** Called with every final outcome. */
  onOutcome?: (event: Frozen, outcome: Accepted | Rejected) => void
  /** Numbers from 0 to 1, for tests. */
  random?: () => number
}

export interface EventOptions {
  /** "default". */
  stream?: string
  /** Made at random by default. */
  key?: string
  /** Of a Uint8Array, which is sent as it is. */
  contentType?: string
  /** Seconds since 1970. */
  occurredAt?: number
}

export interface ConsumeOptions {
  /** "javascript". */
  consumer?: string
  /** Events of a claim; 10. */
  max?: number
  /** 60. */
  leaseSeconds?: number
  /** Longest pause after an empty claim; 1. */
  poll?: number
  /** Ends the iteration at an empty claim. */
  untilEmpty?: boolean
}

export interface Claimed<Data = unknown> {
  readonly id: string
  readonly data: Data
  readonly attempt: number
  readonly entry: Record<string, unknown>
  ack(): Promise<void>
  fail(): Promise<void>
  release(): Promise<void>
  extend(): Promise<void>
}

export interface Client {
  emit(data: unknown, options?: EventOptions): Promise<Emission>
  emitSkyra(envelope: Record<string, unknown>, options?: { occurredAt?: number }): Promise<Emission>
  emitPixelControl(envelope: Record<string, unknown>): Promise<Emission>
  pending(): Emission[]
  rejected(): Emission[]
  discard(id: string): Promise<void>
  flush(seconds?: number): Promise<number>
  close(seconds?: number): Promise<number>
  consume<Data = unknown>(options?: ConsumeOptions & { stream?: string }): AsyncGenerator<Claimed<Data>, void, void>
  consumeInbox<Data = unknown>(options?: ConsumeOptions): AsyncGenerator<Claimed<Data>, void, void>
}

/** Opens a client; with an outbox, events of an earlier process are sent at once. */
export function open(url: string, options?: Options): Promise<Client>

export class Full extends Error {}
export class Invalid extends Error {}
export class LeaseLost extends Error {}
export class Refused extends Error {
  readonly code: string
  readonly status: number
}
