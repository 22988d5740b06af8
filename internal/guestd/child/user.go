package child

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// User is whom a process runs as.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary
	Home   string
	Shell  string
}

// Root is the user of kernels, and of commands that name none.
var Root = User{Name: "root", Home: "/root", Shell: "/bin/bash"}

// LookupUser finds a user by name or number in the passwd and group files of
// the folder etc. A number needs no entry.
func LookupUser(etc, who string) (User, error) {
	if who == "" {
		who = "root"
	}
	u, found, err := findUser(etc+"/passwd", who)
	if err != nil {
		return User{}, err
	}
	if !found {
		uid, err := strconv.ParseUint(who, 10, 32)
		if err != nil {
			if who == "root" {
				return Root, nil
			}
			return User{}, fmt.Errorf("there is no user %q in this sandbox", who)
		}
		// 4294967295 is -1, which setuid takes for "leave it as it is".
		if uid == 1<<32-1 {
			return User{}, fmt.Errorf("%s is not a user id", who)
		}
		u = User{Name: who, UID: uint32(uid), GID: uint32(uid), Home: "/", Shell: "/bin/sh"}
	}
	u.Groups, err = groupsOf(etc+"/group", u)
	return u, err
}

func findUser(path, who string) (u User, found bool, err error) {
	err = eachLine(path, 7, func(f []string) bool {
		if f[0] != who && f[2] != who {
			return true
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			return true
		}
		u = User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5], Shell: f[6]}
		found = true
		return f[0] != who // a name wins over a number
	})
	return u, found, err
}

func groupsOf(path string, u User) ([]uint32, error) {
	groups := []uint32{u.GID}
	err := eachLine(path, 4, func(f []string) bool {
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil &&
			uint32(gid) != u.GID && slices.Contains(strings.Split(f[3], ","), u.Name) {
			groups = append(groups, uint32(gid))
		}
		return true
	})
	return groups, err
}

// eachLine calls f with the fields of each line that has enough of them, until
// f returns false. A file that is missing has no lines.
func eachLine(path string, fields int, f func([]string) bool) error {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for s.Scan() {
		if fs := strings.Split(s.Text(), ":"); len(fs) >= fields && !f(fs) {
			return nil
		}
	}
	return s.Err()
}

// Names are the names of users and groups by their numbers. The zero value
// knows none.
type Names struct{ users, groups map[uint32]string }

// ReadNames reads the passwd and group files of the folder etc. The first name
// of a number counts. Lines that cannot be read have no names.
func ReadNames(etc string) Names {
	read := func(file string, fields int) map[uint32]string {
		names := map[uint32]string{}
		_ = eachLine(etc+"/"+file, fields, func(f []string) bool {
			if id, err := strconv.ParseUint(f[2], 10, 32); err == nil && names[uint32(id)] == "" {
				names[uint32(id)] = f[0]
			}
			return true
		})
		return names
	}
	return Names{users: read("passwd", 7), groups: read("group", 4)}
}

// User gives a user's name, "" when it has none.
func (n Names) User(uid uint32) string { return n.users[uid] }

// Group gives a group's name, "" when it has none.
func (n Names) Group(gid uint32) string { return n.groups[gid] }
