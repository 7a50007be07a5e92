package admit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const replyBytesMax = 1 << 20

var (
	errTimeout    = errors.New("timeout")
	errConnection = errors.New("connection")
)

// link sends requests with a deadline each. It follows no redirect.
type link struct {
	base    string
	timeout time.Duration
	client  *http.Client
}

func newLink(base string, options *Options) *link {
	transport := options.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost = options.Concurrency
		transport = own
	}
	follow := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &link{base, options.Timeout, &http.Client{Transport: transport, CheckRedirect: follow}}
}

// post returns errTimeout or errConnection, and status 0, if there is no complete reply.
func (l *link) post(path string, headers map[string]string, body []byte) (int, http.Header, []byte, error) {
	ctx, end := context.WithTimeout(context.Background(), l.timeout)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, errConnection
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := l.client.Do(request)
	var content []byte
	if err == nil {
		defer response.Body.Close()
		content, err = io.ReadAll(io.LimitReader(response.Body, replyBytesMax+1))
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return 0, nil, nil, errTimeout
	}
	if err != nil || len(content) > replyBytesMax {
		return 0, nil, nil, errConnection
	}
	return response.StatusCode, response.Header, content, nil
}

func requestHeaders(event Event, key string) map[string]string {
	headers := commonHeaders(key)
	headers["Content-Type"] = event.Type
	if event.Door == "events" {
		headers["Idempotency-Key"] = event.Key
	}
	return headers
}

func commonHeaders(key string) map[string]string {
	headers := map[string]string{
		"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "admit-client-go/0.1.0",
	}
	if key != "" {
		headers["Authorization"] = "Bearer " + key
	}
	return headers
}
