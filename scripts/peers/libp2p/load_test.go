package main

import (
	"slices"
	"testing"
)

// The arguments of onrush-load.
func TestPresetsAreSizesAndRates(t *testing.T) {
	for preset, wanted := range map[string]Shape{
		"10x1000":    {10, 1000, 5, 50},
		"webtorrent": {500, 1, 250, 50},
	} {
		if shape, err := parsePreset(preset, 5); err != nil || shape != wanted {
			t.Fatal(preset, shape, err)
		}
	}
	for _, preset := range []string{"10", "0x5", "501x1", "500x61", "1x9000000000000000000", "2x3x"} {
		if shape, err := parsePreset(preset, 1); err == nil {
			t.Fatal(preset, shape)
		}
	}
}

// Only whole samples of the window count.
func TestExtremesAreOfWholeSamples(t *testing.T) {
	sample := func(phase string, seconds, percent float64) Interval {
		return Interval{Phase: phase, Seconds: seconds, Client: ProcessSample{CPUPercent: percent}}
	}
	series := []Interval{sample("ramp", 1, 99), sample("measure", 1, 20), sample("measure", 1, 14),
		sample("measure", 0.1, 400), sample("drain", 1, 0)}
	low, high := extremes(series, 1, 17)
	alone, same := extremes(series[3:], 1, 17)
	if got := []float64{low, high, alone, same}; !slices.Equal(got, []float64{14, 20, 17, 17}) {
		t.Fatal(got)
	}
}

// Each byte of an echo counts, and an echo of what was not written, or of another stream, is wrong.
func TestWrongEchoesAreFound(t *testing.T) {
	all := newLoad(Shape{Streams: 2}, nil)
	all.start = 0
	one := &stream{connection: &connection{load: all, id: 3}, number: 1}
	other := &stream{connection: one.connection, number: 0}
	echo := func(of *stream, change int) {
		block := make([]byte, blockSize)
		head, content := of.parts(one.echoed)
		copy(block[copy(block, head[:]):], content)
		if change >= 0 {
			block[change] ^= 1
		}
		one.compare(block, 2)
	}
	expect := func(right, wrong uint64) {
		t.Helper()
		if got := all.measured; got.Right != right || got.Wrong != wrong || all.pending != 0 {
			t.Fatalf("%+v, %d pending; expected %d right, %d wrong", got, all.pending, right, wrong)
		}
	}
	for change := range blockSize {
		one.accept(1)
		echo(one, change)
		expect(0, uint64(change)+1)
	}
	one.accept(1)
	echo(other, -1)
	expect(0, blockSize+1)
	one.accept(1)
	echo(one, -1)
	expect(1, blockSize+1)
	echo(one, -1)
	expect(1, blockSize+2)
	if len(all.examples) != maxExamples {
		t.Fatal(all.examples)
	}
}

// What is not written is counted, so that each stream is due twice per second whatever happens.
func TestBlocksWithoutRoomAreRefused(t *testing.T) {
	all := newLoad(Shape{Streams: 1}, nil)
	all.start, all.end = 0, 20*period
	one := &stream{connection: &connection{load: all}}
	all.connections = []*connection{one.connection}
	one.queue = []*stream{one}
	for range outstanding + 3 {
		one.accept(one.next)
		one.next += period
	}
	if all.pending != outstanding || all.measured.Refused != 3 {
		t.Fatalf("%d pending, %+v", all.pending, all.measured)
	}
	one.die(nil)
	all.close()
	if got := all.measured; got.Due != 20 || got.Refused != 12 || all.pending != 0 || all.lost != 1 {
		t.Fatalf("%+v, %d pending, %d lost", got, all.pending, all.lost)
	}
}
