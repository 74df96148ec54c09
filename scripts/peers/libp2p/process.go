package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Cpu is CPU time in seconds.
type Cpu struct {
	User   float64 `json:"user"`
	System float64 `json:"system"`
}

func (cpu Cpu) total() float64 { return cpu.User + cpu.System }

// ProcessSample is a process over one interval.
type ProcessSample struct {
	CPUPercent float64 `json:"cpu_percent"`
	RSS        uint64  `json:"rss"`
}

// process is observed by the files of /proc.
type process struct {
	pid int
	at  time.Time
	cpu Cpu
}

func observe(pid int) process { return process{pid, time.Now(), cpuTime(pid)} }

// sample returns the CPU time since the last call, and memory.
func (of *process) sample() ProcessSample {
	before := *of
	*of = observe(of.pid)
	percent := (of.cpu.total() - before.cpu.total()) / of.at.Sub(before.at).Seconds() * 100
	return ProcessSample{percent, memory(of.pid, "VmRSS:")}
}

func read(pid int, file string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(text)
}

// cpuTime is that of all threads, which the kernel reports in hundredths of a second.
func cpuTime(pid int) Cpu {
	// The name of a program, in parentheses, may have spaces.
	_, numbers, _ := strings.Cut(read(pid, "stat"), ") ")
	fields := append(strings.Fields(numbers), make([]string, 13)...)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return Cpu{user / 100, system / 100}
}

// memory is a line of the status, in bytes.
func memory(pid int, name string) uint64 {
	_, line, _ := strings.Cut(read(pid, "status"), name)
	kib, _, _ := strings.Cut(line, "kB")
	count, _ := strconv.ParseUint(strings.TrimSpace(kib), 10, 64)
	return count << 10
}

// drops counts the datagrams that the kernel dropped at a process's full buffers; nil where its
// sockets are not readable.
func drops(pid int) *uint64 {
	directory := fmt.Sprintf("/proc/%d/fd/", pid)
	descriptors, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	own := map[string]bool{}
	for _, descriptor := range descriptors {
		link, _ := os.Readlink(directory + descriptor.Name())
		own[link] = true
	}
	var sum uint64
	for line := range strings.Lines(read(pid, "net/udp") + read(pid, "net/udp6")) {
		if fields := strings.Fields(line); len(fields) == 13 && own["socket:["+fields[9]+"]"] {
			count, _ := strconv.ParseUint(fields[12], 10, 64)
			sum += count
		}
	}
	return &sum
}
