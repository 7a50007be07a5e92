// Durable outbox (Node.js): one file with a checksum per record, synced before an event is confirmed.

import { Buffer } from 'node:buffer'
import { link, open, readFile, rename, unlink, writeFile } from 'node:fs/promises'
import { dirname, resolve as absolute } from 'node:path'
import { newId } from './wire.js'

const COMPACT_ABOVE = 1024 * 1024

/** The outbox has a damaged record; nothing was removed. */
export class Damaged extends Error {}

/** Another client uses the outbox. */
export class Locked extends Error {}

export class Outbox {
  /** Events by id: `{ event, rejected }`. */
  live = new Map()
  #path
  #file
  #size = 0
  #endedBytes = 0
  #sizes = new Map()
  #broken
  #queue = []
  #writing = Promise.resolve()

  static async open(path) {
    const outbox = new Outbox()
    outbox.#path = path
    await lock(`${path}.pid`)
    try {
      await outbox.#read()
      outbox.#file = await open(path, 'a', 0o600)
      await outbox.#file.truncate(outbox.#size)
      await outbox.#file.sync()
      await syncFolder(path)
      if (outbox.#endedBytes > 0) await outbox.#compact()
    } catch (error) {
      await outbox.#file?.close()
      await unlink(`${path}.pid`)
      throw error
    }
    return outbox
  }

  /** Resolves when the event is on disk. */
  async put(event) {
    const lines = linesOf({ event })
    await this.#append(lines, true)
    this.live.set(event.id, { event })
    this.#sizes.set(event.id, lines.length)
  }

  async reject(event, rejected) {
    const line = rejectedLine(event.id, rejected)
    this.live.set(event.id, { event, rejected })
    this.#sizes.set(event.id, this.#sizes.get(event.id) + line.length)
    // Lost in a failure, the event is sent and refused again after a restart.
    await this.#append(line, true).catch(() => {})
  }

  /** The event is accepted or discarded. Not synced: a lost record costs a copy. */
  async end(id) {
    const line = lineOf({ op: 'end', id })
    this.#endedBytes += line.length + this.#sizes.get(id)
    this.live.delete(id)
    this.#sizes.delete(id)
    await this.#append(line, false).catch(() => {})
  }

  async close() {
    await this.#writing
    this.#broken = 'it is closed'
    await this.#file.close()
    await unlink(`${this.#path}.pid`)
  }

  /** Records that wait for a write share it and its sync. */
  #append(line, sync) {
    return new Promise((resolve, reject) => {
      this.#queue.push({ line, sync, resolve, reject })
      if (this.#queue.length === 1) this.#writing = this.#writing.then(() => this.#writeQueue())
    })
  }

  async #writeQueue() {
    const records = this.#queue
    this.#queue = []
    try {
      if (this.#broken) throw new Error(`the outbox ${this.#path} failed before: ${this.#broken}`)
      const content = Buffer.concat(records.map((record) => record.line))
      await this.#write(content, records.some((record) => record.sync))
      this.#size += content.length
    } catch (error) {
      for (const record of records) record.reject(error)
      return
    }
    for (const record of records) record.resolve()
    // After the owners have noted their records.
    await new Promise((resolve) => setImmediate(resolve))
    const isWorthIt = this.#size > COMPACT_ABOVE && this.#endedBytes * 2 > this.#size
    if (isWorthIt && this.#queue.length === 0) await this.#compact()
  }

  async #write(content, sync) {
    try {
      for (let at = 0; at < content.length; ) at += (await this.#file.write(content, at)).bytesWritten
      if (sync) await this.#file.sync()
    } catch (error) {
      try {
        await this.#file.truncate(this.#size)
        await this.#file.sync()
      } catch {
        this.#broken = error.message
      }
      throw error
    }
  }

  async #read() {
    let content
    try {
      content = await readFile(this.#path)
    } catch (error) {
      if (error.code === 'ENOENT') return
      throw error
    }
    while (this.#size < content.length) {
      const end = content.indexOf(10, this.#size) + 1
      const record = end ? parse(content.subarray(this.#size, end)) : undefined
      // Torn by a crash, never confirmed.
      if (!record && (end === 0 || end === content.length)) return
      if (!record || !this.#apply(record, end - this.#size)) {
        throw new Damaged(
          `${this.#path} is damaged at byte ${this.#size}; nothing was removed. ` +
            'Move it away, or remove the record by hand; a retry does not help',
        )
      }
      this.#size = end
    }
  }

  #apply(record, size) {
    const { id } = record
    const entry = this.live.get(id)
    if (record.op === 'put') {
      const { at, door, path, type, key, occurred } = record
      const isWhole = [id, door, path, type, key, record.body].every((text) => typeof text === 'string')
      if (!isWhole || typeof at !== 'number') return false
      const body = new Uint8Array(Buffer.from(record.body, 'base64'))
      const seconds = occurred === undefined ? undefined : occurred / 1000
      const event = Object.freeze({ id, at: at / 1000, door, path, type, key, body, occurred: seconds })
      this.live.set(id, { event })
      this.#sizes.set(id, size)
      return true
    }
    if (record.op === 'rejected') {
      if (!entry) return false
      const { code, message, status } = record
      entry.rejected = { outcome: 'rejected', code, message, status }
      this.#sizes.set(id, this.#sizes.get(id) + size)
      return true
    }
    if (record.op !== 'end') return false
    this.#endedBytes += size + (this.#sizes.get(id) ?? 0)
    this.live.delete(id)
    this.#sizes.delete(id)
    return true
  }

  /** Writes what is left to a new file and renames it; a failure leaves the old one in use. */
  async #compact() {
    const name = `${this.#path}.new`
    const sizes = new Map()
    let file
    let size = 0
    try {
      file = await open(name, 'w', 0o600)
      await file.close()
      file = await open(name, 'a', 0o600)
      for (const [id, entry] of this.live) {
        const lines = linesOf(entry)
        for (let at = 0; at < lines.length; ) at += (await file.write(lines, at)).bytesWritten
        sizes.set(id, lines.length)
        size += lines.length
      }
      await file.sync()
      await rename(name, this.#path)
    } catch {
      await file?.close().catch(() => {})
      return
    }
    await this.#file.close()
    this.#file = file
    this.#endedBytes = 0
    this.#size = size
    this.#sizes = sizes
    await syncFolder(this.#path)
  }
}

function linesOf({ event, rejected }) {
  const { id, door, path, type, key } = event
  const record = { op: 'put', id, at: Math.round(event.at * 1000), door, path, type, key }
  record.body = Buffer.from(event.body).toString('base64')
  if (event.occurred !== undefined) record.occurred = Math.round(event.occurred * 1000)
  const line = lineOf(record)
  return rejected ? Buffer.concat([line, rejectedLine(id, rejected)]) : line
}

function rejectedLine(id, { code, message, status }) {
  return lineOf({ op: 'rejected', id, code, message, status })
}

function lineOf(record) {
  const text = Buffer.from(JSON.stringify(record))
  return Buffer.concat([Buffer.from(`${crc32(text).toString(16).padStart(8, '0')} `), text, Buffer.from('\n')])
}

function parse(line) {
  try {
    const text = line.subarray(9, -1)
    if (line.subarray(0, 8).toString() !== crc32(text).toString(16).padStart(8, '0')) return undefined
    const record = JSON.parse(text.toString())
    return typeof record === 'object' && record !== null ? record : undefined
  } catch {
    return undefined
  }
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let value = n
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1
  return value
})

export function crc32(bytes) {
  let value = 0xffffffff
  for (const byte of bytes) value = CRC_TABLE[(value ^ byte) & 0xff] ^ (value >>> 8)
  return (value ^ 0xffffffff) >>> 0
}

async function syncFolder(path) {
  if (process.platform === 'win32') return
  const folder = await open(dirname(absolute(path)), 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

/** Node.js has no file locks: the file names a process, with its start so that a reused id is recognised. */
async function lock(path) {
  const own = `${process.pid} ${await startOf(process.pid)}`
  for (let attempt = 0; attempt < 10; attempt += 1) {
    try {
      await writeFile(path, own, { flag: 'wx', mode: 0o600 })
      return
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    const holder = await readFile(path, 'utf8').catch(() => '')
    const [pid, start] = holder.split(' ')
    if (holder === own || (isRunning(Number(pid)) && (await startOf(pid)) === start)) break
    await removeStale(path, holder)
  }
  throw new Locked(`another client uses the outbox of ${path}; give each process its own`)
}

/** A lock that another process took in the meantime is put back. */
async function removeStale(path, holder) {
  const aside = `${path}.${newId()}`
  try {
    await rename(path, aside)
  } catch {
    return
  }
  if ((await readFile(aside, 'utf8')) !== holder) await link(aside, path).catch(() => {})
  await unlink(aside)
}

function isRunning(pid) {
  if (!Number.isInteger(pid) || pid <= 0) return false
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

async function startOf(pid) {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    // The name of the program may contain spaces.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return '-'
  }
}
