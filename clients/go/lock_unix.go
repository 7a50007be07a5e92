//go:build unix

package admit

import (
	"os"
	"syscall"
)

// lockFile locks a file until the process ends or closes it.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, &LockedError{path}
	}
	return file, nil
}
