package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

const (
	// Time from the opening of the last stream to the measured window.
	settle = int64(time.Second)
	// Time that echoes may take after the window.
	drain = int64(2 * time.Second)
	// A sample is not shorter, but the last of a window, which may be cut.
	shortest = int64(200 * time.Millisecond)
	// Pause between two looks of the observer.
	look = 5 * time.Millisecond
)

// transport runs a load against a server process of its own.
func transport(options options) (*Report, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words := []string{program, "--serve", "--stack", options.stack, "--preset",
		fmt.Sprintf("1x%d", options.shape.Streams)}
	if options.pin != nil {
		words = append([]string{"taskset", "-c", options.pin[0]}, words...)
	}
	command := exec.Command(words[0], words[1:]...)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	messages := json.NewDecoder(out)
	var ready ready
	if err := messages.Decode(&ready); err != nil {
		return nil, fmt.Errorf("the server's process ended: %w", err)
	}
	dial, err := dialer(options.stack, ready)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	var last finished
	go func() { ended <- messages.Decode(&last) }()
	started := time.Now().Unix()
	observer := newObserver(newLoad(options.shape, dial), options, command.Process.Pid)
	for !observer.look() {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the server's process ended: %w", err)
		case <-time.After(look):
		}
	}
	report := observer.report(options)
	report.Started = started
	fmt.Fprintln(in)
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("the server's process ended: %w", err)
	}
	report.Server.Refused = last.Refused
	report.warn()
	return report, command.Wait()
}

// observer samples both processes, and sets the edges of the measured window. With one vCPU it may
// run late, so an edge is where it reads the CPU times.
type observer struct {
	*load
	// Server and client.
	processes       [2]process
	length, sampled int64
	// The length of the window, and when its next edge is due.
	window, planned int64
	// CPU times of both processes at the edges.
	edges  [][2]Cpu
	series []Interval
}

func newObserver(load *load, options options, pid int) *observer {
	window := int64(options.seconds * 1e9)
	// The kernel reports CPU time in hundredths of a second.
	length := min(max(window/30, shortest), int64(time.Second))
	processes := [2]process{observe(pid), observe(os.Getpid())}
	return &observer{load: load, processes: processes, length: length, window: window}
}

// look does what is due, and returns whether the run has ended.
func (of *observer) look() bool {
	of.Lock()
	defer of.Unlock()
	now := of.now()
	if of.planned == 0 && of.opened == of.shape.all() {
		of.planned = now + settle
	}
	isEdge := of.planned != 0 && now >= of.planned && len(of.edges) < 2
	if isEdge || now >= of.sampled+of.length {
		of.sample(now)
	}
	if isEdge {
		of.edges = append(of.edges, [2]Cpu{of.processes[0].cpu, of.processes[1].cpu})
		if len(of.edges) == 1 {
			of.start, of.planned = now, now+of.window
		} else {
			of.end = now
		}
	}
	isQuiet := of.writing == 0 && of.pending == 0
	return len(of.edges) == 2 && (isQuiet || now >= of.end+drain)
}

func (of *observer) sample(now int64) {
	recent := of.recent
	of.series = append(of.series, Interval{
		Time:        float64(now) / 1e9,
		Seconds:     float64(now-of.sampled) / 1e9,
		Phase:       []string{"ramp", "measure", "drain"}[len(of.edges)],
		Connections: of.established,
		Streams:     of.opened,
		Counts:      recent,
		RoundTrip:   latency(recent.roundTrip),
		Server:      of.processes[0].sample(),
		Client:      of.processes[1].sample(),
	})
	recent.roundTrip.Reset()
	of.recent, of.sampled = Counts{roundTrip: recent.roundTrip}, now
}
