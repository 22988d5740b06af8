// Command guest is what drivers' tests run inside a sandbox instead of the
// guest agent. It connects to the link's socket, again whenever the connection
// breaks, and does what the test on the other end says, a line of JSON each
// way: see drivertest.Call and drivertest.Answer, which it repeats so that it
// needs nothing of the project.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const socket = "/run/pandastack/link/link.sock"

type call struct {
	Do   string `json:"do"`
	Path string `json:"path,omitempty"`
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

type answer struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

var (
	kept    = map[string]string{} // what "keep" put there: memory that a snapshot must hold
	ballast [][]byte
	conns   = map[string]net.Conn{} // what "dial" opened
	mapped  []byte
)

// networkTime is far above what anything takes on a link that ends in the host.
const networkTime = 10 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		time.Sleep(time.Hour)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "say" { // what a file holds, and end
		data, err := os.ReadFile(os.Getenv("SAY"))
		fmt.Println(string(data), err)
		os.Exit(5)
	}
	for {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		go watch(conn)
		serve(conn)
	}
}

// watch closes the connection when a snapshot has broken it. gVisor wakes no
// epoll for that in the sandbox that goes on, and so not Go's runtime, but it
// starts system calls again that were waiting, and poll then sees the end.
func watch(conn net.Conn) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1)
			if err != unix.EINTR {
				break
			}
		}
	})
	_ = conn.Close()
}

func serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var c call
		var a answer
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			a.Error = err.Error()
		} else if a.Text, err = do(c); err != nil {
			a.Error = err.Error()
		}
		if json.NewEncoder(conn).Encode(a) != nil {
			return
		}
	}
}

func do(c call) (string, error) {
	switch c.Do {
	case "echo":
		return c.Text, nil
	case "keep":
		kept[c.Path] = c.Text
		return "", nil
	case "kept":
		return kept[c.Path], nil
	case "hostname":
		return os.Hostname()
	case "write":
		return "", os.WriteFile(c.Path, []byte(c.Text), 0o644)
	case "fill": // n MB into a file
		f, err := os.Create(c.Path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		block := make([]byte, 1<<20)
		for range c.N {
			if _, err := f.Write(block); err != nil {
				return "", err
			}
		}
		return "", nil
	case "remove":
		return "", os.Remove(c.Path)
	case "statfs": // blocks and their size
		var st unix.Statfs_t
		err := unix.Statfs(c.Path, &st)
		return fmt.Sprint(st.Blocks, st.Bsize), err
	case "read":
		data, err := os.ReadFile(c.Path)
		return string(data), err
	case "stat":
		info, err := os.Stat(c.Path)
		if err != nil {
			return "", err
		}
		st := info.Sys().(*syscall.Stat_t)
		return fmt.Sprintf("%s %d:%d", info.Mode(), st.Uid, st.Gid), nil
	case "chown":
		return "", os.Chown(c.Path, c.N, c.N)
	case "mkdir":
		return "", os.MkdirAll(c.Path, 0o755)
	case "mknod":
		return "", syscall.Mknod(c.Path, syscall.S_IFCHR|0o600, 0x100+c.N)
	case "mounts":
		data, err := os.ReadFile("/proc/mounts")
		return string(data), err
	case "ls":
		names, err := filepath.Glob(c.Path + "/*")
		return strings.Join(names, "\n"), err
	case "cpus":
		return strconv.Itoa(runtime.NumCPU()), nil
	case "alloc": // n MB of memory that is used
		for range c.N {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = byte(i)
			}
			ballast = append(ballast, block)
		}
		return "", nil
	case "map": // n MB of memory that no allocator looks after, full
		if mapped == nil {
			var err error
			if mapped, err = unix.Mmap(-1, 0, c.N<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
				return "", err
			}
		}
		for i := range mapped {
			mapped[i] = byte(i>>12 + i)
		}
		return "", nil
	case "mapped": // a sum of it
		return fmt.Sprint(crc32.ChecksumIEEE(mapped)), nil
	case "discard": // all but the first page of n MB of it
		return "", unix.Madvise(mapped[4096:c.N<<20], unix.MADV_DONTNEED)
	case "spawn": // n more processes
		var err error
		for range c.N {
			cmd := exec.Command("/proc/self/exe", "sleep")
			if err = cmd.Start(); err != nil {
				break
			}
		}
		return "", err
	case "nproc": // limit processes, as the guest agent does for users
		limit := unix.Rlimit{Cur: uint64(c.N), Max: uint64(c.N)}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
			return "", err
		}
		return "", dropCapability(unix.CAP_SYS_RESOURCE)
	case "mount":
		return "", unix.Mount("none", c.Path, "tmpfs", 0, "")
	case "listen":
		l, err := net.Listen("tcp", c.Text)
		if err != nil {
			return "", err
		}
		return "", l.Close()
	case "interfaces":
		all, err := net.Interfaces()
		var out []string
		for _, i := range all {
			addrs, _ := i.Addrs()
			out = append(out, fmt.Sprint(i.Name, addrs))
		}
		return strings.Join(out, " "), err
	case "dial":
		conn, err := net.DialTimeout("tcp", c.Text, networkTime)
		if err == nil {
			conns[c.Path] = conn
		}
		return "", err
	case "send":
		_, err := conns[c.Path].Write([]byte(c.Text))
		return "", err
	case "receive": // n bytes
		data := make([]byte, c.N)
		_ = conns[c.Path].SetReadDeadline(time.Now().Add(networkTime))
		_, err := io.ReadFull(conns[c.Path], data)
		return string(data), err
	case "pull": // n MB from a server that sends, and how many nanoseconds that took
		return transfer(c, func(conn net.Conn, block []byte) error {
			_, err := io.ReadFull(conn, block)
			return err
		})
	case "push": // n MB to one that takes, and answers at the end
		return transfer(c, func(conn net.Conn, block []byte) error {
			_, err := conn.Write(block)
			return err
		})
	case "connects": // n connections, one after the other, each for one byte back
		began := time.Now()
		for range c.N {
			conn, err := net.Dial("tcp", c.Text)
			if err != nil {
				return "", err
			}
			_, err = io.ReadFull(conn, make([]byte, 1))
			_ = conn.Close()
			if err != nil {
				return "", err
			}
		}
		return strconv.FormatInt(int64(time.Since(began)), 10), nil
	case "ask": // with one datagram, hexadecimal both ways
		return ask(c.Path, c.Text)
	case "setuid":
		return "", syscall.Setuid(c.N)
	case "spin": // for n milliseconds
		for end := time.Now().Add(time.Duration(c.N) * time.Millisecond); time.Now().Before(end); {
		}
		return "", nil
	case "exit":
		os.Exit(c.N)
	case "hostname=":
		return "", syscall.Sethostname([]byte(c.Text))
	}
	return "", fmt.Errorf("cannot do %q", c.Do)
}

func transfer(c call, block func(net.Conn, []byte) error) (string, error) {
	conn, err := net.Dial("tcp", c.Text)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	data := make([]byte, 1<<20)
	began := time.Now()
	for range c.N {
		if err := block(conn, data); err != nil {
			return "", err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, conn)
	return strconv.FormatInt(int64(time.Since(began)), 10), err
}

func ask(address, question string) (string, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	data, err := hex.DecodeString(question)
	if err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Now().Add(networkTime))
	if _, err := conn.Write(data); err != nil {
		return "", err
	}
	answer := make([]byte, 64<<10)
	n, err := conn.Read(answer)
	return hex.EncodeToString(answer[:n]), err
}

// dropCapability gives a capability up for good.
func dropCapability(n int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[n/32].Effective &^= 1 << (n % 32)
	data[n/32].Permitted &^= 1 << (n % 32)
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return errno
	}
	return nil
}
