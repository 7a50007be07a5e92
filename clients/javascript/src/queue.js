// Queue ordered by time: a binary heap.

export class Queue {
  #items = []

  get size() {
    return this.#items.length
  }

  /** Time of the first item. */
  first() {
    return this.#items[0].at
  }

  push(at, value) {
    const items = this.#items
    let place = items.length
    items.push({ at, value })
    while (place > 0) {
      const parent = (place - 1) >> 1
      if (items[parent].at <= items[place].at) return
      ;[items[parent], items[place]] = [items[place], items[parent]]
      place = parent
    }
  }

  pop() {
    const items = this.#items
    const first = items[0]
    const last = items.pop()
    if (items.length > 0) {
      items[0] = last
      this.#sink()
    }
    return first.value
  }

  #sink() {
    const items = this.#items
    let place = 0
    for (;;) {
      let least = place
      for (const child of [2 * place + 1, 2 * place + 2]) {
        if (child < items.length && items[child].at < items[least].at) least = child
      }
      if (least === place) return
      ;[items[least], items[place]] = [items[place], items[least]]
      place = least
    }
  }
}
