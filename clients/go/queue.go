package admit

import (
	"container/heap"
	"time"
)

type queued struct {
	at       time.Time
	number   int
	emission *Emission
}

// queue is ordered by time, and by arrival where times are equal.
type queue struct {
	items  []queued
	number int
}

func (q *queue) add(at time.Time, emission *Emission) {
	q.number++
	heap.Push(q, queued{at, q.number, emission})
}

func (q *queue) next() *Emission { return heap.Pop(q).(queued).emission }

func (q *queue) Len() int { return len(q.items) }

func (q *queue) Less(a, b int) bool {
	if q.items[a].at.Equal(q.items[b].at) {
		return q.items[a].number < q.items[b].number
	}
	return q.items[a].at.Before(q.items[b].at)
}

func (q *queue) Swap(a, b int) { q.items[a], q.items[b] = q.items[b], q.items[a] }

func (q *queue) Push(item any) { q.items = append(q.items, item.(queued)) }

func (q *queue) Pop() any {
	last := len(q.items) - 1
	item := q.items[last]
	q.items[last] = queued{}
	q.items = q.items[:last]
	return item
}
