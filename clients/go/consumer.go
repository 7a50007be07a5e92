package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"time"
)

// ErrLeaseLost means that the lease does not hold the event any more; another consumer may have it.
var ErrLeaseLost = errors.New("admit: the lease is lost; claim the event again")

// RefusedError is a refused request of a consumer; a retry does not help.
type RefusedError struct {
	Code, Message string
	Status        int
}

func (e *RefusedError) Error() string { return fmt.Sprintf("admit: %s: %s", e.Code, e.Message) }

// ConsumeOptions of a consumer; zero values are the defaults.
type ConsumeOptions struct {
	Stream     string        // "default"
	Consumer   string        // "go"
	Max        int           // events of a claim, 10
	Lease      time.Duration // whole seconds, 60 s
	Poll       time.Duration // longest pause after an empty claim, 1 s
	UntilEmpty bool          // ends the iteration at an empty claim
}

// Consumer iterates over claimed events. For one goroutine at a time.
type Consumer struct {
	client  *Client
	path    string
	options ConsumeOptions
	waiting []*Claimed
}

// Claimed is an event that is leased to this consumer. Data is the payload of an inbox entry.
type Claimed struct {
	ID         string
	Data       json.RawMessage
	DataBase64 []byte
	Attributes json.RawMessage
	Attempt    int
	Lease      string
	consumer   *Consumer
	expires    time.Time
}

// Consume returns a consumer of a stream.
func (c *Client) Consume(options ConsumeOptions) (*Consumer, error) {
	event, err := freezeEvent(nil, EventOptions{Stream: options.Stream})
	if err != nil {
		return nil, err
	}
	return c.consumer(event.Path, options), nil
}

// ConsumeInbox returns a consumer of the inbox.
func (c *Client) ConsumeInbox(options ConsumeOptions) *Consumer {
	return c.consumer("/v1/inbox", options)
}

func (c *Client) consumer(path string, options ConsumeOptions) *Consumer {
	if options.Consumer == "" {
		options.Consumer = "go"
	}
	if options.Max <= 0 {
		options.Max = 10
	}
	if options.Lease < time.Second {
		options.Lease = 60 * time.Second
	}
	if options.Poll <= 0 {
		options.Poll = time.Second
	}
	return &Consumer{client: c, path: path, options: options}
}

// Next returns the next event, waiting for it; nil at the end with UntilEmpty.
func (c *Consumer) Next(ctx context.Context) (*Claimed, error) {
	for len(c.waiting) == 0 {
		if err := c.claim(ctx); err != nil {
			return nil, err
		}
		if len(c.waiting) > 0 {
			break
		}
		if c.options.UntilEmpty {
			return nil, nil
		}
		if err := sleep(ctx, time.Duration(c.client.options.Random()*float64(c.options.Poll))); err != nil {
			return nil, err
		}
	}
	first := c.waiting[0]
	c.waiting = c.waiting[1:]
	return first, nil
}

// Close releases the claimed events that Next did not return.
func (c *Consumer) Close(ctx context.Context) error {
	var failed error
	for _, claimed := range c.waiting {
		if err := claimed.Release(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
			failed = err
		}
	}
	c.waiting = nil
	return failed
}

type claimReply struct {
	Events []struct {
		ReceiptID      string          `json:"receipt_id"`
		EventID        string          `json:"event_id"`
		Data           json.RawMessage `json:"data"`
		DataBase64     []byte          `json:"data_base64"`
		Payload        json.RawMessage `json:"payload"`
		Attributes     json.RawMessage `json:"attributes"`
		Attempt        int             `json:"attempt"`
		Lease          string          `json:"lease"`
		LeaseExpiresAt string          `json:"lease_expires_at"`
	} `json:"events"`
}

func (c *Consumer) claim(ctx context.Context) error {
	wanted := map[string]any{"consumer": c.options.Consumer, "max": c.options.Max, "lease_seconds": c.leaseSeconds()}
	text, err := c.call(ctx, c.path+"/claim", wanted, time.Time{})
	if err != nil {
		return err
	}
	var reply claimReply
	if err := json.Unmarshal(text, &reply); err != nil {
		return fmt.Errorf("admit: the reply to a claim has another shape: %w", err)
	}
	for _, entry := range reply.Events {
		claimed := &Claimed{ID: entry.ReceiptID, Data: entry.Data, DataBase64: entry.DataBase64, Attributes: entry.Attributes}
		claimed.Attempt, claimed.Lease, claimed.consumer = entry.Attempt, entry.Lease, c
		if entry.EventID != "" {
			claimed.ID, claimed.Data = entry.EventID, entry.Payload
		}
		claimed.expires = c.endOf(entry.LeaseExpiresAt)
		c.waiting = append(c.waiting, claimed)
	}
	return nil
}

// Ack finishes the event.
func (c *Claimed) Ack(ctx context.Context) error { return c.settle(ctx, "done") }

// Fail finishes the event without success; it is not handed out again.
func (c *Claimed) Fail(ctx context.Context) error { return c.settle(ctx, "failed") }

// Release makes the event available again at once.
func (c *Claimed) Release(ctx context.Context) error { return c.settle(ctx, "released") }

// Extend leases the event for another length of the lease from now.
func (c *Claimed) Extend(ctx context.Context) error { return c.settle(ctx, "extended") }

func (c *Claimed) settle(ctx context.Context, status string) error {
	change := map[string]any{"status": status, "lease": c.Lease}
	if status == "extended" {
		change["lease_seconds"] = c.consumer.leaseSeconds()
	}
	text, err := c.consumer.call(ctx, c.consumer.path+"/"+url.PathEscape(c.ID), change, c.expires)
	if err == nil && status == "extended" {
		c.expires = c.consumer.endOf(textOf(objectOf(text)["lease_expires_at"]))
	}
	return err
}

func (c *Consumer) leaseSeconds() int { return int(math.Round(c.options.Lease.Seconds())) }

// endOf returns the end of a lease: the earlier of the gate's time and the requested length.
func (c *Consumer) endOf(text string) time.Time {
	end := time.Now().Add(c.options.Lease)
	if until, err := time.Parse(time.RFC3339, text); err == nil && until.Before(end) {
		return until
	}
	return end
}

// call repeats a request after faults until the deadline, if there is one.
func (c *Consumer) call(ctx context.Context, path string, content any, deadline time.Time) ([]byte, error) {
	body, err := jsonOf(content)
	if err != nil {
		return nil, err
	}
	options := &c.client.options
	for attempt := 1; deadline.IsZero() || time.Now().Before(deadline); attempt++ {
		status, headers, text, err := c.client.link.post(path, commonHeaders(options.Key), body)
		pause := jitter(options.Random, attempt, options.BackoffBase, options.BackoffCap)
		if err == nil {
			reply := objectOf(text)
			if status == 200 && len(reply) > 0 {
				return text, nil
			}
			problem := problemOf(reply["error"])
			if status >= 400 && status <= 499 && problem.isFinal() {
				return nil, refusal(status, problem)
			}
			pause += retryAfter(headers, problem)
		}
		if left := time.Until(deadline); !deadline.IsZero() && pause > left {
			pause = left
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	return nil, ErrLeaseLost
}

func refusal(status int, problem problem) error {
	if problem.code() == "lease_lost" {
		return ErrLeaseLost
	}
	message, _ := problem.Message.(string)
	return &RefusedError{problem.code(), message, status}
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
