// Command conformance-driver connects the client to the conformance kit: JSON lines on standard input and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	admit "example.org/admit/client"
)

type call struct {
	Do         string          `json:"do"`
	URL        string          `json:"url"`
	Options    options         `json:"options"`
	ID         string          `json:"id"`
	Seconds    float64         `json:"seconds"`
	Door       string          `json:"door"`
	Stream     string          `json:"stream"`
	Key        *string         `json:"key"`
	Data       json.RawMessage `json:"data"`
	OccurredAt float64         `json:"occurred_at"`
	Inbox      bool            `json:"inbox"`
	Consumer   string          `json:"consumer"`
	Max        int             `json:"max"`
	How        string          `json:"how"`
}

type options struct {
	Key             string  `json:"key"`
	Outbox          string  `json:"outbox"`
	Horizon         float64 `json:"horizon"`
	Timeout         float64 `json:"timeout"`
	BackoffBase     float64 `json:"backoff_base"`
	BackoffCap      float64 `json:"backoff_cap"`
	Concurrency     int     `json:"concurrency"`
	PendingMax      int     `json:"pending_max"`
	PendingBytesMax int     `json:"pending_bytes_max"`
}

type reply map[string]any

type driver struct {
	client    *admit.Client
	emissions map[string]*admit.Emission
	consumer  *admit.Consumer
	current   *admit.Claimed
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func (d *driver) perform(c call) (reply, error) {
	ctx := context.Background()
	if c.Do == "wait" || c.Do == "flush" || c.Do == "close" {
		limited, end := context.WithTimeout(ctx, seconds(c.Seconds))
		defer end()
		ctx = limited
	}
	switch c.Do {
	case "hello":
		return reply{"client": "go", "abilities": []string{"outbox", "background"}}, nil
	case "open":
		return d.open(c)
	case "emit":
		return d.emit(c)
	case "wait":
		return outcome(d.emissions[c.ID].Wait(ctx)), nil
	case "flush":
		return reply{"pending": d.client.Flush(ctx)}, nil
	case "close":
		left, err := d.client.Close(ctx)
		return reply{"pending": left}, err
	case "rejected":
		events := []reply{}
		for _, emission := range d.client.Rejected() {
			events = append(events, reply{"id": emission.Event.ID, "key": emission.Event.Key})
		}
		return reply{"events": events}, nil
	case "discard":
		return reply{}, d.client.Discard(c.ID)
	}
	return d.consume(ctx, c)
}

func (d *driver) open(c call) (reply, error) {
	o := c.Options
	client, err := admit.Open(c.URL, admit.Options{
		Key: o.Key, Outbox: o.Outbox, Horizon: seconds(o.Horizon), Timeout: seconds(o.Timeout),
		BackoffBase: seconds(o.BackoffBase), BackoffCap: seconds(o.BackoffCap), Concurrency: o.Concurrency,
		PendingMax: o.PendingMax, PendingBytesMax: o.PendingBytesMax,
	})
	d.client = client
	return reply{}, err
}

func (d *driver) emit(c call) (reply, error) {
	var emission *admit.Emission
	var err error
	var envelope map[string]any
	if c.Door != "events" {
		if err := json.Unmarshal(c.Data, &envelope); err != nil {
			return nil, err
		}
	}
	switch c.Door {
	case "skyra":
		emission, err = d.client.EmitSkyra(envelope)
	case "pixel-control":
		emission, err = d.client.EmitPixelControl(envelope)
	default:
		options := admit.EventOptions{Stream: c.Stream}
		if c.Key != nil {
			options.Key = *c.Key
			if *c.Key == "" {
				// An empty key means a random one in this client.
				return nil, &admit.InvalidError{Reason: "an empty key"}
			}
		}
		if c.OccurredAt > 0 {
			options.OccurredAt = time.UnixMilli(int64(c.OccurredAt * 1000))
		}
		emission, err = d.client.Emit(c.Data, options)
	}
	if err != nil {
		return nil, err
	}
	d.emissions[emission.Event.ID] = emission
	return reply{"id": emission.Event.ID, "key": emission.Event.Key}, nil
}

func outcome(o admit.Outcome) reply {
	return reply{
		"outcome": o.State, "duplicate": o.Duplicate, "code": o.Code, "reason": o.Reason, "expired": o.Expired,
	}
}

func (d *driver) consume(ctx context.Context, c call) (reply, error) {
	var err error
	switch c.Do {
	case "consume":
		options := admit.ConsumeOptions{Stream: c.Stream, Consumer: c.Consumer, Max: c.Max, UntilEmpty: true}
		if c.Inbox {
			d.consumer = d.client.ConsumeInbox(options)
		} else {
			d.consumer, err = d.client.Consume(options)
		}
		return reply{}, err
	case "next":
		d.current, err = d.consumer.Next(ctx)
		if err != nil || d.current == nil {
			return reply{"id": nil}, err
		}
		return reply{"id": d.current.ID, "data": d.current.Data, "attempt": d.current.Attempt}, nil
	case "settle":
		settle := map[string]func(context.Context) error{
			"ack": d.current.Ack, "fail": d.current.Fail, "release": d.current.Release, "extend": d.current.Extend,
		}
		return reply{}, settle[c.How](ctx)
	case "stop":
		return reply{}, d.consumer.Close(ctx)
	}
	return nil, fmt.Errorf("unknown call %s", c.Do)
}

func kind(err error) string {
	var full *admit.FullError
	var invalid *admit.InvalidError
	var locked *admit.LockedError
	var damaged *admit.DamagedError
	var refused *admit.RefusedError
	switch {
	case errors.As(err, &full):
		return "full"
	case errors.As(err, &invalid):
		return "invalid"
	case errors.As(err, &locked):
		return "locked"
	case errors.As(err, &damaged):
		return "damaged"
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, admit.ErrLeaseLost):
		return "lease_lost"
	}
	return "other"
}

func main() {
	d := &driver{emissions: map[string]*admit.Emission{}}
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		answer, err := d.perform(c)
		if err != nil {
			answer = reply{"error": kind(err), "detail": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}
