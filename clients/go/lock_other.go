//go:build !unix

package admit

import (
	"errors"
	"os"
)

// lockFile fails: without a lock two processes could share an outbox unnoticed.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("admit: the outbox needs file locks, which this client has only on Unix; run the edge agent instead")
}
