package admit

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const retryAfterMax = 600 * time.Second

var (
	keyPattern    = regexp.MustCompile(`^[!#-\[\]-~]{1,255}$`)
	streamPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	digits        = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// Refusals of the sender or the address: the gate did not look at the event.
var notOfTheEvent = map[string]bool{
	"unauthorized": true, "forbidden": true, "not_found": true, "method_not_allowed": true,
}

// State is one of the three outcomes of an event.
type State string

// The three outcomes.
const (
	Accepted State = "accepted"
	Rejected State = "rejected"
	Pending  State = "pending"
)

// Outcome is what is known about an event.
type Outcome struct {
	State State
	// Duplicate of an accepted event; nil where the door does not say.
	Duplicate *bool
	// Receipt is the reply of the gate for an accepted event.
	Receipt json.RawMessage
	// Code, Message and Status of a rejected event.
	Code    string
	Message string
	Status  int
	// Reason of the last attempt of a pending event.
	Reason   string
	Attempts int
	// Expired events are older than the horizon and are not sent again.
	Expired bool
}

func (o Outcome) isOver() bool { return o.State != Pending || o.Expired }

// Event is an emitted event as it is sent, the same at every attempt.
type Event struct {
	ID   string
	At   time.Time
	Door string
	Path string
	Type string
	Key  string
	Body []byte
	// OccurredAt is zero if the event has no time of its own.
	OccurredAt time.Time
}

// InvalidError is an event that cannot be sent as it is; a retry does not help.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return "admit: " + e.Reason }

// EventOptions of an event; the zero value is the default.
type EventOptions struct {
	Stream      string // "default"
	Key         string // made at random if empty
	ContentType string // for []byte, which is sent as it is
	OccurredAt  time.Time
}

func newID() (string, error) {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(bytes[:]), nil
}

func freezeEvent(data any, options EventOptions) (Event, error) {
	stream := options.Stream
	if stream == "" {
		stream = "default"
	}
	if !streamPattern.MatchString(stream) {
		return Event{}, &InvalidError{fmt.Sprintf("%q is not the name of a stream", stream)}
	}
	key := options.Key
	if key == "" {
		id, err := newID()
		if err != nil {
			return Event{}, err
		}
		key = id
	}
	contentType := "application/json"
	body, isBytes := data.([]byte)
	if isBytes {
		if options.ContentType == "" {
			return Event{}, &InvalidError{"bytes need a ContentType"}
		}
		body = append([]byte(nil), body...)
	} else {
		text, err := jsonOf(data)
		if err != nil {
			return Event{}, err
		}
		body = text
	}
	if options.ContentType != "" {
		contentType = options.ContentType
	}
	return frozen("events", "/v1/events/"+stream, contentType, key, body, options.OccurredAt)
}

func freezeSkyra(envelope map[string]any, occurredAt time.Time) (Event, error) {
	whole := map[string]any{"ts": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
	for name, value := range envelope {
		whole[name] = value
	}
	if _, isThere := whole["event_id"]; !isThere {
		id, err := newID()
		if err != nil {
			return Event{}, err
		}
		whole["event_id"] = "evt_" + id
	}
	body, err := jsonOf(whole)
	if err != nil {
		return Event{}, err
	}
	key, _ := whole["event_id"].(string)
	return frozen("skyra", "/v1/ingress", "application/json", key, body, occurredAt)
}

func freezePixelControl(envelope map[string]any) (Event, error) {
	transport := map[string]any{"attempt": 1, "max_attempts": 1, "retry_backoff_ms": 0, "auth_mode": "none"}
	body, err := jsonOf(map[string]any{"envelope": envelope, "transport": transport})
	if err != nil {
		return Event{}, err
	}
	key, _ := envelope["idempotency_key"].(string)
	var times struct {
		Envelope struct {
			SourceTime any `json:"source_time"`
		} `json:"envelope"`
	}
	var occurred time.Time
	if err := json.Unmarshal(body, &times); err == nil {
		if seconds, isNumber := times.Envelope.SourceTime.(float64); isNumber && seconds > 0 && seconds < 1e12 {
			occurred = time.UnixMilli(int64(seconds * 1000))
		}
	}
	return frozen("pixel-control", "/plugin/events", "application/json", key, body, occurred)
}

func frozen(door, path, contentType, key string, body []byte, occurred time.Time) (Event, error) {
	if !keyPattern.MatchString(key) {
		return Event{}, &InvalidError{"a key has 1 to 255 visible ASCII characters, without quotes and backslashes"}
	}
	if len(body) == 0 {
		return Event{}, &InvalidError{"an event has at least one byte"}
	}
	id, err := newID()
	if err != nil {
		return Event{}, err
	}
	return Event{ID: id, At: time.Now(), Door: door, Path: path, Type: contentType, Key: key, Body: body, OccurredAt: occurred}, nil
}

func jsonOf(data any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		return nil, &InvalidError{"the event is not JSON: " + err.Error()}
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// A fault is an attempt without a decision, and the least pause before the next.
type fault struct {
	reason     string
	retryAfter time.Duration
}

type problem struct {
	Code       any `json:"code"`
	Message    any `json:"message"`
	Retryable  any `json:"retryable"`
	RetryAfter any `json:"retry_after_seconds"`
}

func (p problem) code() string {
	text, _ := p.Code.(string)
	return text
}

func (p problem) isFinal() bool {
	retryable, isThere := p.Retryable.(bool)
	return isThere && !retryable && p.code() != ""
}

// classify returns the outcome of a reply, or a fault if there is none.
func classify(event Event, status int, headers http.Header, body []byte) (*Outcome, fault) {
	reply := objectOf(body)
	if accepted := acceptance(event, status, headers, reply); accepted != nil {
		accepted.Receipt = body
		return accepted, fault{}
	}
	problem := problemOf(reply["error"])
	isFinal := status >= 400 && status <= 499
	if event.Door == "pixel-control" && status == http.StatusOK {
		ack := objectOf(reply["ack"])
		problem = problemOf(nil)
		if textOf(ack["status"]) == "rejected" {
			problem = problemOf(reply["ack"])
		}
		isFinal = true
	}
	if event.Door == "skyra" {
		if id, isThere := reply["event_id"]; isThere && string(id) != "null" && textOf(id) != event.Key {
			isFinal = false
		}
	}
	code := problem.code()
	if isFinal && problem.isFinal() && !notOfTheEvent[code] {
		message, _ := problem.Message.(string)
		return &Outcome{State: Rejected, Code: code, Message: message, Status: status}, fault{}
	}
	if code == "" {
		code = "http_" + strconv.Itoa(status)
	}
	return nil, fault{code, retryAfter(headers, problem)}
}

func acceptance(event Event, status int, headers http.Header, reply map[string]json.RawMessage) *Outcome {
	switch event.Door {
	case "events":
		isReceipt := isText(reply["receipt_id"]) && isText(reply["key"])
		if isReceipt && (status == http.StatusOK || status == http.StatusCreated) {
			duplicate := strings.EqualFold(headers.Get("Idempotent-Replayed"), "true")
			return &Outcome{State: Accepted, Duplicate: &duplicate}
		}
	case "skyra":
		if status == http.StatusOK && textOf(reply["status"]) == "stored" && textOf(reply["event_id"]) == event.Key {
			return &Outcome{State: Accepted}
		}
	case "pixel-control":
		ack := objectOf(reply["ack"])
		isOwn := textOf(ack["idempotency_key"]) == event.Key
		if status == http.StatusOK && textOf(ack["status"]) == "accepted" && isOwn {
			duplicate := textOf(ack["disposition"]) == "duplicate"
			return &Outcome{State: Accepted, Duplicate: &duplicate}
		}
	}
	return nil
}

// retryAfter returns the least pause that a reply demands.
func retryAfter(headers http.Header, problem problem) time.Duration {
	seconds, _ := problem.RetryAfter.(float64)
	text := strings.TrimSpace(headers.Get("Retry-After"))
	if digits.MatchString(text) {
		seconds, _ = strconv.ParseFloat(text, 64)
	} else if date, err := http.ParseTime(text); err == nil {
		// Not time.Until, whose nanoseconds overflow for a date far ahead.
		seconds = float64(date.UnixMilli()-time.Now().UnixMilli()) / 1000
	}
	seconds = math.Min(math.Max(seconds, 0), retryAfterMax.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// jitter is full jitter: even between 0 and the doubled base, limited by the cap.
func jitter(random func() float64, attempt int, base, limit time.Duration) time.Duration {
	doubled := float64(base) * math.Pow(2, math.Min(float64(attempt-1), 60))
	return time.Duration(random() * math.Min(float64(limit), doubled))
}

func objectOf(text []byte) map[string]json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return nil
	}
	return object
}

func problemOf(text json.RawMessage) problem {
	var p problem
	if len(text) == 0 || json.Unmarshal(text, &p) != nil {
		return problem{}
	}
	return p
}

func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

func textOf(value json.RawMessage) string {
	var text string
	if !isText(value) || json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}
