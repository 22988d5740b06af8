package child

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Info is what /proc says of a process.
type Info struct {
	PID     int
	Parent  int
	Group   int
	Session int
	Zombie  bool
	Memory  int64 // bytes in use, pages shared with others included
}

// List reads all processes from /proc.
func List() ([]Info, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if info, err := parseStat(stat); err == nil {
			info.PID = pid
			all = append(all, info)
		}
	}
	return all, nil
}

// parseStat reads the fields after the program's name, which stands in
// parentheses and may itself hold spaces and parentheses.
func parseStat(stat []byte) (Info, error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return Info{}, errors.New("no name in stat")
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return Info{}, errors.New("stat is too short")
	}
	var n [3]int
	for i := range n {
		v, err := strconv.Atoi(string(f[i+1]))
		if err != nil {
			return Info{}, err
		}
		n[i] = v
	}
	pages, err := strconv.ParseInt(string(f[21]), 10, 64)
	if err != nil {
		return Info{}, err
	}
	return Info{
		Parent: n[0], Group: n[1], Session: n[2], Zombie: f[0][0] == 'Z', Memory: pages * int64(os.Getpagesize()),
	}, nil
}

// killPatience is how long KillSession fights a session that goes on forking.
const killPatience = 5 * time.Second

// KillSession kills every process of a session, and those that they fork in
// the meantime. What has left the session with setsid stays.
func KillSession(sid int) {
	if sid <= 1 {
		return
	}
	_ = unix.Kill(sid, unix.SIGKILL)
	for end := time.Now().Add(killPatience); ; {
		// One call ends a whole group, so this wins against a fork bomb.
		for range 100 {
			if err := unix.Kill(-sid, unix.SIGKILL); err != nil {
				break
			}
			runtime.Gosched()
		}
		if killMembers(sid) == 0 || time.Now().After(end) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// killMembers kills what is left of a session in whatever groups, and says how
// many those were.
func killMembers(sid int) (left int) {
	all, err := List()
	if err != nil {
		return 0
	}
	for _, p := range all {
		if p.Session == sid && !p.Zombie && p.PID > 1 {
			left++
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
	return left
}
