package admit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const compactAbove = 1 << 20

// DamagedError is a damaged record in the outbox; nothing was removed.
type DamagedError struct {
	Path string
	At   int
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("admit: %s is damaged at byte %d; nothing was removed. "+
		"Move it away, or remove the record by hand; a retry does not help", e.Path, e.At)
}

// LockedError is an outbox that another client uses.
type LockedError struct{ Path string }

func (e *LockedError) Error() string {
	return "admit: another client uses the outbox of " + e.Path + "; give each process its own"
}

type record struct {
	Op       string `json:"op"`
	ID       string `json:"id"`
	At       int64  `json:"at,omitempty"`
	Door     string `json:"door,omitempty"`
	Path     string `json:"path,omitempty"`
	Type     string `json:"type,omitempty"`
	Key      string `json:"key,omitempty"`
	Body     []byte `json:"body,omitempty"`
	Occurred *int64 `json:"occurred,omitempty"`
	Code     string `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
	Status   int    `json:"status,omitempty"`
}

type outboxEntry struct {
	event    Event
	rejected *Outcome
	size     int
}

// outbox is one file with a checksum per record. The client's lock guards it.
type outbox struct {
	path       string
	lock       *os.File
	file       *os.File
	live       map[string]*outboxEntry
	order      []string
	size       int
	endedBytes int
	broken     error
}

func openOutbox(path string) (*outbox, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	box := &outbox{path: path, lock: lock, live: map[string]*outboxEntry{}}
	if err := box.open(); err != nil {
		lock.Close()
		return nil, err
	}
	return box, nil
}

func (box *outbox) open() error {
	if err := box.read(); err != nil {
		return err
	}
	file, err := os.OpenFile(box.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	box.file = file
	if err := file.Truncate(int64(box.size)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if box.endedBytes > 0 {
		box.compact()
	}
	return syncFolder(box.path)
}

// put returns after the event is on disk.
func (box *outbox) put(event Event) error {
	line := putLine(event)
	if err := box.append(line, true); err != nil {
		return err
	}
	box.keep(event, len(line))
	return nil
}

func (box *outbox) keep(event Event, size int) {
	box.live[event.ID] = &outboxEntry{event: event, size: size}
	box.order = append(box.order, event.ID)
}

func (box *outbox) reject(id string, rejected Outcome) {
	entry := box.live[id]
	entry.rejected = &rejected
	line := rejectedLine(id, rejected)
	// Lost in a failure, the event is sent and refused again after a restart.
	if box.append(line, true) == nil {
		entry.size += len(line)
	}
}

// end notes that the event is accepted or discarded. Not synced: a lost record costs a copy.
func (box *outbox) end(id string) {
	line := lineOf(record{Op: "end", ID: id})
	box.endedBytes += box.live[id].size
	delete(box.live, id)
	if box.append(line, false) != nil {
		return
	}
	box.endedBytes += len(line)
	if box.size > compactAbove && box.endedBytes*2 > box.size {
		box.compact()
	}
}

func (box *outbox) close() error {
	box.broken = errors.New("it is closed")
	first, second := box.file.Close(), box.lock.Close()
	if first != nil {
		return first
	}
	return second
}

func (box *outbox) append(line []byte, sync bool) error {
	if box.broken != nil {
		return fmt.Errorf("admit: the outbox %s failed before: %w", box.path, box.broken)
	}
	_, err := box.file.Write(line)
	if err == nil && sync {
		err = box.file.Sync()
	}
	if err == nil {
		box.size += len(line)
		return nil
	}
	undo := box.file.Truncate(int64(box.size))
	if undo == nil {
		undo = box.file.Sync()
	}
	if undo != nil {
		box.broken = err
	}
	return fmt.Errorf("admit: the event was not taken: %w", err)
}

func (box *outbox) read() error {
	content, err := os.ReadFile(box.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for box.size < len(content) {
		length := bytes.IndexByte(content[box.size:], '\n') + 1
		isLast := length == 0 || box.size+length == len(content)
		var one *record
		if length > 0 {
			one = parseLine(content[box.size : box.size+length])
		}
		if one == nil && isLast {
			// Torn by a crash, never confirmed.
			return nil
		}
		if one == nil || !box.apply(*one, length) {
			return &DamagedError{box.path, box.size}
		}
		box.size += length
	}
	return nil
}

func (box *outbox) apply(one record, size int) bool {
	entry := box.live[one.ID]
	switch one.Op {
	case "put":
		if one.ID == "" || one.At == 0 || one.Door == "" || one.Path == "" || one.Type == "" || one.Key == "" {
			return false
		}
		event := Event{ID: one.ID, At: time.UnixMilli(one.At), Door: one.Door, Path: one.Path, Type: one.Type, Key: one.Key, Body: one.Body}
		if one.Occurred != nil {
			event.OccurredAt = time.UnixMilli(*one.Occurred)
		}
		box.keep(event, size)
	case "rejected":
		if entry == nil {
			return false
		}
		entry.rejected = &Outcome{State: Rejected, Code: one.Code, Message: one.Message, Status: one.Status}
		entry.size += size
	case "end":
		box.endedBytes += size
		if entry != nil {
			box.endedBytes += entry.size
			delete(box.live, one.ID)
		}
	default:
		return false
	}
	return true
}

// inOrder returns the live events, oldest first.
func (box *outbox) inOrder() []*outboxEntry {
	var entries []*outboxEntry
	var order []string
	for _, id := range box.order {
		if entry := box.live[id]; entry != nil {
			entries = append(entries, entry)
			order = append(order, id)
		}
	}
	box.order = order
	return entries
}

// compact writes what is left to a new file and renames it; a failure leaves the old one in use.
func (box *outbox) compact() {
	name := box.path + ".new"
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	entries := box.inOrder()
	sizes := make([]int, len(entries))
	total := 0
	for i, entry := range entries {
		line := putLine(entry.event)
		if entry.rejected != nil {
			line = append(line, rejectedLine(entry.event.ID, *entry.rejected)...)
		}
		if _, err = file.Write(line); err != nil {
			break
		}
		sizes[i] = len(line)
		total += len(line)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(name, box.path)
	}
	if err != nil {
		file.Close()
		return
	}
	box.file.Close()
	box.file, box.size, box.endedBytes = file, total, 0
	for i, entry := range entries {
		entry.size = sizes[i]
	}
	if err := syncFolder(box.path); err != nil {
		box.broken = err
	}
}

func putLine(event Event) []byte {
	one := record{Op: "put", ID: event.ID, At: event.At.UnixMilli(), Door: event.Door, Path: event.Path,
		Type: event.Type, Key: event.Key, Body: event.Body}
	if !event.OccurredAt.IsZero() {
		occurred := event.OccurredAt.UnixMilli()
		one.Occurred = &occurred
	}
	return lineOf(one)
}

func rejectedLine(id string, rejected Outcome) []byte {
	return lineOf(record{Op: "rejected", ID: id, Code: rejected.Code, Message: rejected.Message, Status: rejected.Status})
}

func lineOf(one record) []byte {
	text, err := json.Marshal(one)
	if err != nil {
		panic(err) // a record has only texts, numbers and bytes
	}
	return []byte(fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE(text), text))
}

func parseLine(line []byte) *record {
	if len(line) < 10 {
		return nil
	}
	text := line[9 : len(line)-1]
	if string(line[:8]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
		return nil
	}
	var one record
	if json.Unmarshal(text, &one) != nil {
		return nil
	}
	return &one
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
