// One POST with a deadline for the whole request. Follows no redirect and repeats nothing.

const REPLY_BYTES_MAX = 1024 * 1024

/** No complete reply; the request may have been performed. */
export class NoReply extends Error {}

/** Returns status, header function and text. */
export async function post(url, headers, body, timeoutSeconds) {
  const ending = new AbortController()
  const timer = setTimeout(() => ending.abort(), timeoutSeconds * 1000)
  try {
    const response = await fetch(url, { method: 'POST', headers, body, redirect: 'manual', signal: ending.signal })
    const text = await limitedText(response)
    return { status: response.status, header: (name) => response.headers.get(name), text }
  } catch (error) {
    throw new NoReply(ending.signal.aborted ? 'timeout' : 'connection', { cause: error })
  } finally {
    clearTimeout(timer)
  }
}

async function limitedText(response) {
  if (!response.body) return ''
  const parts = []
  let size = 0
  for await (const part of response.body) {
    size += part.length
    // Leaving the loop cancels the body.
    if (size > REPLY_BYTES_MAX) throw new Error('the reply is too long')
    parts.push(part)
  }
  const whole = new Uint8Array(size)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return new TextDecoder().decode(whole)
}

export function baseOf(url) {
  const parsed = new URL(url)
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    throw new TypeError(`${url} is not the http or https address of a gate`)
  }
  return parsed.origin + parsed.pathname.replace(/\/+$/, '')
}

export function sleep(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000))
}
