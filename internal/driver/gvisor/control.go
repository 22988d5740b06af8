package gvisor

import (
	"encoding/json"
	"net"

	"golang.org/x/sys/unix"
)

// waitInit asks the sentry for the end of the sandbox's first program and gives
// its exit code, 128 + n for signal n. The channel is closed without one when
// the sentry ends before it can tell. It speaks runsc's own control protocol, a
// JSON object each way, because the alternative is a runsc process a sandbox
// that does nothing but wait.
func (d *Driver) waitInit(id string) <-chan int {
	code := make(chan int, 1)
	conn, err := net.Dial("unix", d.socket(id))
	if err != nil {
		close(code)
		return code
	}
	go func() {
		defer close(code)
		defer conn.Close()
		call := struct {
			Method string `json:"method"`
			Arg    string `json:"arg"`
		}{"containerManager.Wait", id}
		if err := json.NewEncoder(conn).Encode(call); err != nil {
			return
		}
		var answer struct {
			Success bool   `json:"success"`
			Err     string `json:"err"`
			Result  uint32 `json:"result"`
		}
		if err := json.NewDecoder(conn).Decode(&answer); err != nil || !answer.Success {
			if err == nil {
				d.log.Warn("runsc does not tell how a sandbox ends", "sandbox", id, "error", answer.Err)
			}
			return
		}
		status := unix.WaitStatus(answer.Result)
		switch {
		case status.Exited():
			code <- status.ExitStatus()
		case status.Signaled():
			code <- 128 + int(status.Signal())
		}
	}()
	return code
}
