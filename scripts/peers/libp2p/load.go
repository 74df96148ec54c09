package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/libp2p/go-libp2p/core/network"
	tpt "github.com/libp2p/go-libp2p/core/transport"
)

const (
	blockSize = 1024
	// Bytes of a block in front of its content: connection, stream and number.
	headSize = 12
	// Pause between two blocks of a stream.
	period = int64(500 * time.Millisecond)
	// Pause between the first blocks of two streams of a connection in the published load.
	publishedPause = int64(100 * time.Millisecond)
	// Blocks of a stream that may be without their echo. Further ones are refused.
	outstanding = 8
	// Time that a connection may take.
	patience = 20 * time.Second
	// First wrong echoes that are described.
	maxExamples = 4
)

// Shape is the size of a load, and how it grows.
type Shape struct {
	Connections int     `json:"connections"`
	Streams     int     `json:"streams"`
	ConnectRate float64 `json:"connect_rate"`
	OpenRate    float64 `json:"open_rate"`
}

func (shape Shape) all() int { return shape.Connections * shape.Streams }

// Counts of blocks.
type Counts struct {
	Due       uint64 `json:"due"`
	Refused   uint64 `json:"refused"`
	Right     uint64 `json:"right"`
	Wrong     uint64 `json:"wrong"`
	roundTrip *hdrhistogram.Histogram
}

// latencies has the bounds of onrush-load, in nanoseconds.
func latencies() *hdrhistogram.Histogram { return hdrhistogram.New(1_000, 60_000_000_000, 3) }

func record(histogram *hdrhistogram.Histogram, value int64) {
	_ = histogram.RecordValue(min(value, histogram.HighestTrackableValue()))
}

// load is the client: which stream writes when, and whether what returns is what was written. Times
// are in nanoseconds since its start.
type load struct {
	shape  Shape
	epoch  time.Time
	dial   func(context.Context) (tpt.CapableConn, error)
	source []byte

	// For what follows, and the fields of connections and streams.
	sync.Mutex
	connections []*connection
	established int
	opened      int
	// Connections that have blocks of the window to write.
	writing    int
	start, end int64
	// Blocks that were due within the window, and all since the last sample.
	measured, recent Counts
	// Right echoes that arrived within the window.
	arrived int
	// Blocks of the window that were written and have no echo yet.
	pending         int
	behind, connect *hdrhistogram.Histogram
	examples        []string
	lost            int
	lostReason      string
}

type connection struct {
	*load
	id     int
	muxed  tpt.CapableConn
	isLost bool
	// When it was established.
	since int64
	// Open streams, in the order of their next block.
	queue []*stream
	ready chan *stream
}

type stream struct {
	*connection
	number          int
	muxed           network.MuxedStream
	isDead          bool
	next            int64
	written, echoed uint32
	// Due times of the blocks without an echo, by their number.
	due [outstanding]int64
}

// newLoad starts a load.
func newLoad(shape Shape, dial func(context.Context) (tpt.CapableConn, error)) *load {
	of := &load{
		shape: shape, epoch: time.Now(), dial: dial, source: make([]byte, 8192),
		writing: shape.Connections, start: math.MaxInt64, end: math.MaxInt64,
		measured: Counts{roundTrip: latencies()}, recent: Counts{roundTrip: latencies()},
		behind: latencies(), connect: latencies(), examples: []string{},
	}
	state := uint64(1)
	for at := range of.source {
		// Knuth's constants for a linear congruential generator.
		state = state*0x5851F42D4C957F2D + 0x14057B7EF767814F
		of.source[at] = byte(state >> 56)
	}
	for id := range shape.Connections {
		one := &connection{load: of, id: id, ready: make(chan *stream, shape.Streams)}
		of.connections = append(of.connections, one)
		go one.run()
	}
	return of
}

func (of *load) now() int64 { return int64(time.Since(of.epoch)) }

// run establishes a connection, opens its streams and writes their blocks. Without a connection the
// process ends, and the server with it.
func (of *connection) run() {
	asked := int64(float64(of.id) / of.shape.ConnectRate * 1e9)
	time.Sleep(time.Duration(asked - of.now()))
	asked = of.now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	muxed, err := of.dial(ctx)
	cancel()
	if err != nil {
		fail(noReply, fmt.Errorf("connection %d was not established: %w", of.id, err))
	}
	of.muxed = muxed
	now := of.now()
	of.since = now
	of.Lock()
	record(of.connect, now-asked)
	of.established++
	of.Unlock()
	opens, nextOpening, timer := 0, now, time.NewTimer(0)
	for {
		now = of.now()
		for ; opens < of.shape.Streams && nextOpening <= now; opens++ {
			go of.open(opens)
			nextOpening += int64(1e9 / of.shape.OpenRate)
		}
		wake, done := of.write(now)
		if done {
			return
		}
		if opens < of.shape.Streams {
			wake = min(wake, nextOpening)
		}
		timer.Reset(time.Duration(wake - of.now()))
		select {
		case <-timer.C:
		case stream := <-of.ready:
			of.Lock()
			of.opened++
			of.enqueue(stream)
			of.Unlock()
		}
	}
}

// open opens a stream and compares what it returns. A stream writes in the group that it has in the
// published load, also where streams open faster.
func (of *connection) open(number int) {
	muxed, err := of.muxed.OpenStream(context.Background())
	now := of.now()
	next := now + (int64(number)*publishedPause+period-(now-of.since)%period)%period
	one := &stream{connection: of, number: number, muxed: muxed, next: next, isDead: err != nil}
	of.ready <- one
	var block [blockSize]byte
	for err == nil {
		if _, err = io.ReadFull(muxed, block[:]); err == nil {
			one.compare(block[:], of.now())
		}
	}
	of.Lock()
	one.die(err)
	of.Unlock()
}

func (of *connection) enqueue(one *stream) {
	later := func(of *stream, at int64) int { return int(of.next - at) }
	at, _ := slices.BinarySearchFunc(of.queue, one.next+1, later)
	of.queue = slices.Insert(of.queue, at, one)
}

// write writes the blocks that are due; it returns when the next one is, or that there is none.
func (of *connection) write(now int64) (wake int64, done bool) {
	var block [blockSize]byte
	of.Lock()
	defer of.Unlock()
	for len(of.queue) > 0 {
		one := of.queue[0]
		at := one.next
		if at >= of.end {
			of.writing--
			return 0, true
		}
		if at > now {
			return at, false
		}
		of.queue = of.queue[1:]
		one.next += period
		of.enqueue(one)
		if !one.accept(at) {
			continue
		}
		head, content := one.parts(one.written - 1)
		copy(block[copy(block[:], head[:]):], content)
		of.Unlock()
		_, err := one.muxed.Write(block[:])
		now = of.now()
		of.Lock()
		if err != nil {
			one.die(err)
		}
	}
	return math.MaxInt64, false
}

// accept counts a block that is due, and decides whether it is written.
func (of *stream) accept(at int64) bool {
	accepted := !of.isDead && of.written-of.echoed < outstanding
	of.count(at, func(counts *Counts) {
		counts.Due++
		if !accepted {
			counts.Refused++
		}
	})
	if accepted {
		if of.isMeasured(at) {
			record(of.behind, of.now()-at)
			of.pending++
		}
		of.due[of.written%outstanding] = at
		of.written++
	}
	return accepted
}

// compare compares an echo with what was written.
func (of *stream) compare(block []byte, now int64) {
	of.Lock()
	defer of.Unlock()
	head, content := of.parts(of.echoed)
	why := "its bytes differ"
	switch {
	case of.isDead:
		return
	case of.echoed == of.written:
		why = "it was not written"
	case bytes.Equal(block[:headSize], head[:]) && bytes.Equal(block[headSize:], content):
		due := of.retire()
		of.count(due, func(counts *Counts) {
			counts.Right++
			record(counts.roundTrip, now-due)
		})
		if of.isMeasured(now) {
			of.arrived++
		}
		return
	default:
		defer of.retire()
	}
	// Wrong echoes count whenever they arrive.
	of.recent.Wrong++
	of.measured.Wrong++
	if len(of.examples) < maxExamples {
		of.examples = append(of.examples, fmt.Sprintf("connection %d, stream %d, echo %d: %s",
			of.id, of.number, of.echoed, why))
	}
}

// retire ends the oldest block without an echo; it returns its due time.
func (of *stream) retire() int64 {
	due := of.due[of.echoed%outstanding]
	if of.isMeasured(due) {
		of.pending--
	}
	of.echoed++
	return due
}

// die makes a stream refuse its further blocks. The first of a connection counts as its loss.
func (of *stream) die(reason error) {
	of.isDead = true
	for of.echoed != of.written {
		of.retire()
	}
	if !of.isLost {
		of.isLost = true
		of.lost++
		if of.lost == 1 {
			of.lostReason = fmt.Sprintf("connection %d: %v", of.id, reason)
		}
	}
}

// parts returns both parts of a block, which differ in connection, stream and number.
func (of *stream) parts(number uint32) (head [headSize]byte, content []byte) {
	connection, stream := uint32(of.id), uint32(of.number)
	for at, value := range []uint32{connection, stream, number} {
		binary.BigEndian.PutUint32(head[at*4:], value)
	}
	start := int((connection*31+stream)*131+number%97) % (len(of.source) - blockSize)
	return head, of.source[start : start+blockSize-headSize]
}

func (of *load) isMeasured(at int64) bool { return of.start <= at && at < of.end }

// count changes the counts that a block of this due time belongs to.
func (of *load) count(at int64, change func(*Counts)) {
	change(&of.recent)
	if of.isMeasured(at) {
		change(&of.measured)
	}
}

// close refuses the blocks of the window that were not reached, as a write before them has no end.
func (of *load) close() {
	for _, one := range of.connections {
		for _, stream := range one.queue {
			stream.isDead = true
			for ; stream.next < of.end; stream.next += period {
				stream.accept(stream.next)
			}
		}
	}
}
