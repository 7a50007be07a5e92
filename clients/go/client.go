// Package admit is a client of Admit, the front door for events. The specification is clients/SPEC.md in
// the repository.
package admit

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// ErrClosed is returned by a client after Close.
var ErrClosed = errors.New("admit: the client is closed")

// FullError is a full queue; the event was not taken.
type FullError struct{ Events, Bytes, Rejected int }

func (e *FullError) Error() string {
	return fmt.Sprintf("admit: %d events of %d bytes are queued, %d of them rejected; this event was not taken. "+
		"Retry later, or discard the rejected ones", e.Events, e.Bytes, e.Rejected)
}

// Options of a client; zero values are the defaults.
type Options struct {
	Key             string        // API key
	Outbox          string        // path of the durable outbox; none by default
	Horizon         time.Duration // age above which an event is not sent; none by default
	Timeout         time.Duration // of an attempt, 10 s
	BackoffBase     time.Duration // 250 ms
	BackoffCap      time.Duration // 30 s
	Concurrency     int           // attempts at a time, 4
	PendingMax      int           // 10,000
	PendingBytesMax int           // 64 MiB
	// OnOutcome is called with every final outcome, one call at a time per attempt in flight.
	OnOutcome func(Event, Outcome)
	// Random returns numbers from 0 to 1, for tests.
	Random func() float64
	// Transport replaces the HTTP transport, for example for other TLS settings.
	Transport http.RoundTripper
}

func (o *Options) fill() {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.BackoffBase <= 0 {
		o.BackoffBase = 250 * time.Millisecond
	}
	if o.BackoffCap <= 0 {
		o.BackoffCap = 30 * time.Second
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.PendingMax <= 0 {
		o.PendingMax = 10_000
	}
	if o.PendingBytesMax <= 0 {
		o.PendingBytesMax = 64 << 20
	}
	if o.Random == nil {
		// The shared source is safe for several goroutines.
		own := rand.New(rand.NewSource(time.Now().UnixNano()))
		var lock sync.Mutex
		o.Random = func() float64 {
			lock.Lock()
			defer lock.Unlock()
			return own.Float64()
		}
	}
}

// Emission is an emitted event.
type Emission struct {
	Event   Event
	client  *Client
	outcome Outcome
	over    chan struct{}
}

// Outcome returns what is known now.
func (e *Emission) Outcome() Outcome {
	e.client.lock.Lock()
	defer e.client.lock.Unlock()
	return e.outcome
}

// Wait returns the outcome, pending when the context ends first, the event expired or the client is closed.
func (e *Emission) Wait(ctx context.Context) Outcome {
	select {
	case <-e.over:
	case <-ctx.Done():
	}
	return e.Outcome()
}

// Client sends events to a gate until each is accepted or refused. Safe for several goroutines.
type Client struct {
	options     Options
	link        *link
	lock        sync.Mutex
	outbox      *outbox
	kept        map[string]*Emission
	bytes       int
	queue       queue
	inFlight    int
	pausedUntil time.Time
	failedLinks int
	isClosed    bool
	idle        []chan struct{}
	wake        chan struct{}
	closing     chan struct{}
	workers     sync.WaitGroup
}

// Open returns a client; with an outbox, events of an earlier process are sent at once.
func Open(address string, options Options) (*Client, error) {
	options.fill()
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, &InvalidError{fmt.Sprintf("%q is not the http or https address of a gate", address)}
	}
	client := &Client{options: options, link: newLink(strings.TrimRight(address, "/"), &options)}
	client.kept = map[string]*Emission{}
	client.wake = make(chan struct{}, 1)
	client.closing = make(chan struct{})
	if options.Outbox != "" {
		if client.outbox, err = openOutbox(options.Outbox); err != nil {
			return nil, err
		}
		client.recover()
	}
	client.workers.Add(1)
	go client.dispatch()
	return client, nil
}

func (c *Client) recover() {
	for _, entry := range c.outbox.inOrder() {
		emission := c.keep(entry.event)
		if entry.rejected == nil {
			c.queue.add(time.Now(), emission)
			continue
		}
		emission.outcome = *entry.rejected
		close(emission.over)
	}
}

// Emit queues an event for an events stream; with an outbox, it returns when the event is on disk.
func (c *Client) Emit(data any, options ...EventOptions) (*Emission, error) {
	var chosen EventOptions
	if len(options) > 0 {
		chosen = options[0]
	}
	event, err := freezeEvent(data, chosen)
	if err != nil {
		return nil, err
	}
	return c.take(event)
}

// EmitSkyra queues an envelope for the skyra door.
func (c *Client) EmitSkyra(envelope map[string]any) (*Emission, error) {
	event, err := freezeSkyra(envelope, time.Time{})
	if err != nil {
		return nil, err
	}
	return c.take(event)
}

// EmitPixelControl queues an envelope for the pixel-control door.
func (c *Client) EmitPixelControl(envelope map[string]any) (*Emission, error) {
	event, err := freezePixelControl(envelope)
	if err != nil {
		return nil, err
	}
	return c.take(event)
}

// Pending returns the events without a final outcome, also the expired ones.
func (c *Client) Pending() []*Emission { return c.in(Pending) }

// Rejected returns the refused events in the outbox.
func (c *Client) Rejected() []*Emission { return c.in(Rejected) }

func (c *Client) in(state State) []*Emission {
	c.lock.Lock()
	defer c.lock.Unlock()
	var found []*Emission
	for _, emission := range c.kept {
		if emission.outcome.State == state {
			found = append(found, emission)
		}
	}
	return found
}

// Discard removes a rejected or expired event.
func (c *Client) Discard(id string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	emission := c.kept[id]
	if emission == nil || !emission.outcome.isOver() {
		return &InvalidError{id + " is neither rejected nor expired"}
	}
	c.remove(emission)
	return nil
}

// Flush waits until no event is queued or in flight, or the context ends; it returns how many are.
func (c *Client) Flush(ctx context.Context) int {
	c.lock.Lock()
	if left := c.unfinished(); left == 0 || c.isClosed {
		c.lock.Unlock()
		return left
	}
	idle := make(chan struct{})
	c.idle = append(c.idle, idle)
	c.lock.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.unfinished()
}

// Close flushes and ends the client; it returns the number of events that are still pending.
func (c *Client) Close(ctx context.Context) (int, error) {
	left := c.Flush(ctx)
	c.lock.Lock()
	if c.isClosed {
		c.lock.Unlock()
		return left, nil
	}
	c.isClosed = true
	close(c.closing)
	c.lock.Unlock()
	c.workers.Wait()
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, emission := range c.kept {
		if !emission.outcome.isOver() {
			close(emission.over)
		}
	}
	if c.outbox != nil {
		return c.unfinished(), c.outbox.close()
	}
	return c.unfinished(), nil
}

func (c *Client) take(event Event) (*Emission, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.isClosed {
		return nil, ErrClosed
	}
	if len(c.kept) >= c.options.PendingMax || c.bytes+len(event.Body) > c.options.PendingBytesMax {
		full := &FullError{Events: len(c.kept), Bytes: c.bytes}
		for _, emission := range c.kept {
			if emission.outcome.State == Rejected {
				full.Rejected++
			}
		}
		return nil, full
	}
	if c.outbox != nil {
		if err := c.outbox.put(event); err != nil {
			return nil, err
		}
	}
	emission := c.keep(event)
	c.queue.add(time.Now(), emission)
	c.changed()
	return emission, nil
}

func (c *Client) keep(event Event) *Emission {
	emission := &Emission{Event: event, client: c, over: make(chan struct{})}
	emission.outcome = Outcome{State: Pending, Reason: "not_sent"}
	c.kept[event.ID] = emission
	c.bytes += len(event.Body)
	return emission
}

func (c *Client) remove(emission *Emission) {
	delete(c.kept, emission.Event.ID)
	c.bytes -= len(emission.Event.Body)
	if c.outbox != nil {
		c.outbox.end(emission.Event.ID)
	}
}

func (c *Client) unfinished() int { return len(c.queue.items) + c.inFlight }

// changed wakes the dispatcher, and Flush if nothing is left.
func (c *Client) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	if c.unfinished() == 0 {
		for _, idle := range c.idle {
			close(idle)
		}
		c.idle = nil
	}
}

// dispatch starts every attempt that is due.
func (c *Client) dispatch() {
	defer c.workers.Done()
	for {
		pause := c.start()
		var timer <-chan time.Time
		if pause >= 0 {
			timer = time.After(pause)
		}
		select {
		case <-c.closing:
			return
		case <-c.wake:
		case <-timer:
		}
	}
}

// start returns how long nothing is due; negative if only a change can end the wait.
func (c *Client) start() time.Duration {
	c.lock.Lock()
	defer c.lock.Unlock()
	for !c.isClosed && c.inFlight < c.options.Concurrency && len(c.queue.items) > 0 {
		due := c.queue.items[0].at
		if c.pausedUntil.After(due) {
			due = c.pausedUntil
		}
		if pause := time.Until(due); pause > 0 {
			return pause
		}
		emission := c.queue.next()
		if c.expire(emission) {
			continue
		}
		c.inFlight++
		c.workers.Add(1)
		go func() {
			defer c.workers.Done()
			c.deliver(emission)
		}()
	}
	return -1
}

func (c *Client) expire(emission *Emission) bool {
	since := emission.Event.OccurredAt
	if since.IsZero() {
		since = emission.Event.At
	}
	// Without the monotonic reading: the age counts across restarts and suspensions.
	if c.options.Horizon <= 0 || time.Now().Round(0).Sub(since.Round(0)) < c.options.Horizon {
		return false
	}
	attempts := emission.outcome.Attempts
	emission.outcome = Outcome{State: Pending, Reason: "outside_horizon", Attempts: attempts, Expired: true}
	close(emission.over)
	c.changed()
	return true
}

func (c *Client) deliver(emission *Emission) {
	event := emission.Event
	status, headers, body, err := c.link.post(event.Path, requestHeaders(event, c.options.Key), event.Body)
	var outcome *Outcome
	var failed fault
	if err != nil {
		failed = fault{reason: err.Error()}
	} else {
		outcome, failed = classify(event, status, headers, body)
	}
	c.lock.Lock()
	c.inFlight--
	if outcome == nil {
		c.pause(status, failed)
		c.retry(emission, failed)
		c.changed()
		c.lock.Unlock()
		return
	}
	c.failedLinks = 0
	outcome.Attempts = emission.outcome.Attempts + 1
	if c.outbox != nil && outcome.State == Rejected {
		c.outbox.reject(event.ID, *outcome)
	} else {
		c.remove(emission)
	}
	emission.outcome = *outcome
	close(emission.over)
	c.changed()
	c.lock.Unlock()
	if c.options.OnOutcome != nil {
		c.options.OnOutcome(event, *outcome)
	}
}

// pause holds back all events; the status is 0 after an attempt without a reply.
func (c *Client) pause(status int, failed fault) {
	var pause time.Duration
	if status == 0 {
		c.failedLinks++
		pause = jitter(c.options.Random, c.failedLinks, c.options.BackoffBase, c.options.BackoffCap)
	} else {
		c.failedLinks = 0
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			pause = failed.retryAfter
		}
	}
	if until := time.Now().Add(pause); until.After(c.pausedUntil) {
		c.pausedUntil = until
	}
}

func (c *Client) retry(emission *Emission, failed fault) {
	attempts := emission.outcome.Attempts + 1
	emission.outcome = Outcome{State: Pending, Reason: failed.reason, Attempts: attempts}
	pause := failed.retryAfter + jitter(c.options.Random, attempts, c.options.BackoffBase, c.options.BackoffCap)
	c.queue.add(time.Now().Add(pause), emission)
}
