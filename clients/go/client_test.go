package admit

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type replyCase struct {
	Name    string            `json:"name"`
	Door    string            `json:"door"`
	Key     string            `json:"key"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Text    *string           `json:"text"`
	Expect  map[string]any    `json:"expect"`
}

func TestEveryReplyOfTheTableIsClassifiedAsSpecified(t *testing.T) {
	table, err := os.ReadFile("../conformance/replies.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []replyCase
	if err := json.Unmarshal(table, &cases); err != nil {
		t.Fatal(err)
	}
	for _, one := range cases {
		headers := http.Header{}
		for name, value := range one.Headers {
			headers.Set(name, value)
		}
		body := []byte(one.Body)
		if one.Text != nil {
			body = []byte(*one.Text)
		}
		outcome, failed := classify(Event{Door: one.Door, Key: one.Key}, one.Status, headers, body)
		found := map[string]any{"outcome": "pending", "reason": failed.reason, "retry_after": failed.retryAfter.Seconds()}
		if outcome != nil {
			found = map[string]any{"outcome": string(outcome.State), "code": outcome.Code, "duplicate": nil}
			if outcome.Duplicate != nil {
				found["duplicate"] = *outcome.Duplicate
			}
		}
		for member, value := range one.Expect {
			if found[member] != value {
				t.Errorf("%s: %s is %v, not %v", one.Name, member, found[member], value)
			}
		}
	}
}

func TestADateOfRetryAfterIsANumberOfSeconds(t *testing.T) {
	headers := http.Header{"Retry-After": {time.Now().Add(100 * time.Second).UTC().Format(http.TimeFormat)}}
	if pause := retryAfter(headers, problem{}); pause <= 0 || pause > 100*time.Second {
		t.Error(pause)
	}
}

func TestThePauseIsSpreadFromZeroToTheDoubledBaseAndCapped(t *testing.T) {
	for attempt := 1; attempt < 200; attempt++ {
		top := math.Min(30e9, 0.25e9*math.Pow(2, float64(attempt-1)))
		for _, random := range []float64{0, 0.5, 1} {
			pause := jitter(func() float64 { return random }, attempt, 250*time.Millisecond, 30*time.Second)
			if pause != time.Duration(random*top) {
				t.Errorf("attempt %d, random %v: %v", attempt, random, pause)
			}
		}
	}
}

func TestTheBytesAreFrozenAtEmit(t *testing.T) {
	data := []byte("abc")
	event, err := freezeEvent(data, EventOptions{ContentType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 'x'
	if string(event.Body) != "abc" || event.Type != "text/plain" {
		t.Error(event)
	}
}

func TestWhatJSONCannotRepresentIsInvalid(t *testing.T) {
	for _, data := range []any{math.NaN(), make(chan int), []byte("x"), []byte{}} {
		if _, err := freezeEvent(data, EventOptions{}); err == nil {
			t.Errorf("%v was taken", data)
		}
	}
}

func TestTextIsNotEscapedForHTML(t *testing.T) {
	event, err := freezeEvent(map[string]string{"a": "<&>"}, EventOptions{})
	if err != nil || string(event.Body) != `{"a":"<&>"}` {
		t.Error(string(event.Body), err)
	}
}

func TestTheQueueReturnsItemsByTimeAndThenByArrival(t *testing.T) {
	var q queue
	now := time.Now()
	for n := 0; n < 500; n++ {
		q.add(now.Add(time.Duration(n*7919%503/10)), &Emission{Event: Event{At: now.Add(time.Duration(n))}})
	}
	last := queued{}
	for len(q.items) > 0 {
		next := q.items[0]
		q.next()
		if next.at.Before(last.at) || (next.at.Equal(last.at) && next.number < last.number) {
			t.Fatal("out of order")
		}
		last = next
	}
}

func TestEndedEventsAreRemovedFromTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.outbox")
	box, err := openOutbox(path)
	if err != nil {
		t.Fatal(err)
	}
	put := func(data any) Event {
		event, err := freezeEvent(data, EventOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := box.put(event); err != nil {
			t.Fatal(err)
		}
		return event
	}
	put(map[string]int{"n": 0})
	for n := 0; n < 40; n++ {
		box.end(put(strings.Repeat("x", 100_000)).ID)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 1_500_000 {
		t.Error(info.Size(), err)
	}
	if err := box.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openOutbox(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	entries := again.inOrder()
	if len(entries) != 1 || string(entries[0].event.Body) != `{"n":0}` {
		t.Error(entries)
	}
}

func TestARecordThatCannotBeWrittenIsAnErrorAndLeavesNoTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.outbox")
	box, err := openOutbox(path)
	if err != nil {
		t.Fatal(err)
	}
	defer box.close()
	writable := box.file
	box.file, err = os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	event, _ := freezeEvent(1, EventOptions{})
	if box.put(event) == nil || len(box.live) != 0 {
		t.Error("the event was taken")
	}
	box.file.Close()
	box.file = writable
}
