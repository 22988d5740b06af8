package api

import (
	"encoding/json"
	"errors"
)

// Command is what to run: a string for the shell, or a list of arguments.
type Command struct {
	Shell string
	Argv  []string
}

// IsZero reports whether there is nothing to run.
func (c Command) IsZero() bool { return c.Shell == "" && len(c.Argv) == 0 }

// Args gives the argument vector, through /bin/bash -c for a shell string.
func (c Command) Args() []string {
	if c.Argv != nil {
		return c.Argv
	}
	return []string{"/bin/bash", "-c", c.Shell}
}

// MarshalJSON writes a string or an array.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Argv != nil {
		return json.Marshal(c.Argv)
	}
	return json.Marshal(c.Shell)
}

// UnmarshalJSON reads a string or an array of strings.
func (c *Command) UnmarshalJSON(b []byte) error {
	*c = Command{}
	if json.Unmarshal(b, &c.Shell) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &c.Argv); err != nil || c.Argv == nil {
		return errors.New("cmd must be a string or an array of strings")
	}
	return nil
}
