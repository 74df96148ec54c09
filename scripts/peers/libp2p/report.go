package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// The version of the JSON of onrush-load.
	format = 1
	// Percent of its vCPU above which a side is at its limit.
	fullPercent = 95
	// Microseconds by which the client may write late at p99.
	late = 50_000
)

// Report has the fields and units of onrush-load's. It has no environment, which is in the reports
// of onrush-load that it is compared with.
type Report struct {
	Format  int             `json:"format"`
	Version string          `json:"version"`
	Started int64           `json:"started"`
	Command string          `json:"command"`
	Stack   string          `json:"stack"`
	Shape   Shape           `json:"shape"`
	Block   int             `json:"block"`
	Period  float64         `json:"period"`
	Pin     [2]*json.Number `json:"pin"`
	Seconds float64         `json:"seconds"`
	Counts
	Examples        []string     `json:"examples"`
	DueRate         float64      `json:"due_rate"`
	EchoRate        float64      `json:"echo_rate"`
	RoundTrip       Latency      `json:"round_trip"`
	Curve           []CurvePoint `json:"curve"`
	Behind          Latency      `json:"behind"`
	Connect         Latency      `json:"connect"`
	LostConnections int          `json:"lost_connections"`
	Server          Side         `json:"server"`
	Client          Side         `json:"client"`
	Environment     *struct{}    `json:"environment"`
	Series          []Interval   `json:"series"`
	Warnings        []string     `json:"warnings"`
}

// Side is a process.
type Side struct {
	CPU         Cpu     `json:"cpu"`
	MeanPercent float64 `json:"mean_percent"`
	MinPercent  float64 `json:"min_percent"`
	MaxPercent  float64 `json:"max_percent"`
	UsPerEcho   float64 `json:"us_per_echo"`
	RSS         uint64  `json:"rss"`
	PeakRSS     uint64  `json:"peak_rss"`
	Drops       *uint64 `json:"drops"`
	Refused     uint64  `json:"refused"`
	// go-libp2p does not count these.
	Unsent uint64 `json:"unsent"`
}

// Interval is one of a run.
type Interval struct {
	Time        float64 `json:"time"`
	Seconds     float64 `json:"seconds"`
	Phase       string  `json:"phase"`
	Connections int     `json:"connections"`
	Streams     int     `json:"streams"`
	Counts
	RoundTrip Latency       `json:"round_trip"`
	Server    ProcessSample `json:"server"`
	Client    ProcessSample `json:"client"`
}

// Latency is a distribution in microseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// CurvePoint is one of a distribution.
type CurvePoint struct {
	Share   float64 `json:"share"`
	Latency float64 `json:"latency"`
	Count   int64   `json:"count"`
}

func latency(of *hdrhistogram.Histogram) Latency {
	if of.TotalCount() == 0 {
		return Latency{}
	}
	at := func(quantile float64) float64 { return float64(of.ValueAtQuantile(quantile)) / 1e3 }
	return Latency{of.Mean() / 1e3, at(50), at(90), at(99), at(99.9), float64(of.Max()) / 1e3}
}

// report is that on the whole run, before the server ends.
func (of *observer) report(options options) *Report {
	of.Lock()
	defer of.Unlock()
	of.close()
	of.sample(of.now())
	seconds := float64(of.end-of.start) / 1e9
	words := append([]string{"libp2p"}, os.Args[1:]...)
	report := &Report{
		Format: format, Version: version(), Command: strings.Join(words, " "),
		Stack: options.stack, Shape: of.shape, Block: blockSize, Period: float64(period) / 1e9,
		Seconds: seconds, Counts: of.measured, Examples: of.examples,
		DueRate: float64(of.measured.Due) / seconds, EchoRate: float64(of.arrived) / seconds,
		RoundTrip: latency(of.measured.roundTrip), Curve: []CurvePoint{},
		Behind: latency(of.behind), Connect: latency(of.connect), LostConnections: of.lost,
		Server: of.side(0, seconds), Client: of.side(1, seconds), Series: of.series,
		Warnings: []string{},
	}
	if options.pin != nil {
		server, client := json.Number(options.pin[0]), json.Number(options.pin[1])
		report.Pin = [2]*json.Number{&server, &client}
	}
	for _, point := range of.measured.roundTrip.CumulativeDistribution() {
		value := CurvePoint{point.Quantile / 100, float64(point.ValueAt) / 1e3, point.Count}
		report.Curve = append(report.Curve, value)
	}
	if of.lost > 0 {
		text := fmt.Sprintf("%d connections ended during the run: %s", of.lost, of.lostReason)
		report.Warnings = append(report.Warnings, text)
	}
	return report
}

func (of *observer) side(number int, seconds float64) Side {
	pid, first, last := of.processes[number].pid, of.edges[0][number], of.edges[1][number]
	cpu := Cpu{last.User - first.User, last.System - first.System}
	side := Side{
		CPU: cpu, MeanPercent: cpu.total() / seconds * 100,
		UsPerEcho: cpu.total() * 1e6 / float64(max(of.arrived, 1)),
		RSS:       memory(pid, "VmRSS:"), PeakRSS: memory(pid, "VmHWM:"), Drops: drops(pid),
	}
	side.MinPercent, side.MaxPercent = extremes(of.series, number, side.MeanPercent)
	return side
}

// extremes returns the lowest and the highest CPU percent of the samples of the window that are
// long enough; mean without any.
func extremes(series []Interval, number int, mean float64) (low, high float64) {
	var percents []float64
	for _, it := range series {
		if it.Phase == "measure" && it.Seconds >= float64(shortest)/1e9 {
			percent := []float64{it.Server.CPUPercent, it.Client.CPUPercent}[number]
			percents = append(percents, percent)
		}
	}
	if percents == nil {
		return mean, mean
	}
	return slices.Min(percents), slices.Max(percents)
}

// version is that of go-libp2p.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/libp2p/go-libp2p" {
			return "go-libp2p " + module.Version
		}
	}
	return "go-libp2p"
}

// missedPercent is the share of due echoes that did not come or were not asked for.
func (of *Report) missedPercent() float64 {
	return float64(of.Due-min(of.Right, of.Due)) * 100 / float64(max(of.Due, 1))
}

func (of *Report) warn() {
	warn := func(is bool, text string, values ...any) {
		if is {
			of.Warnings = append(of.Warnings, fmt.Sprintf(text, values...))
		}
	}
	warn(of.Behind.P99 > late || of.Client.MeanPercent > fullPercent,
		"the client used %.0f %% of a vCPU and wrote %s late at p99: it was at its limit, or a"+
			" transport without room blocked it", of.Client.MeanPercent, ms(of.Behind.P99))
	warn(of.Server.MeanPercent > fullPercent,
		"the server was at its limit: %.0f %% of a vCPU", of.Server.MeanPercent)
	warn(of.Pin[0] == nil, "the sides are not pinned to vCPUs of their own: CPU times vary more")
	for name, side := range map[string]Side{"server": of.Server, "client": of.Client} {
		if side.Drops != nil {
			warn(*side.Drops > 0, "the kernel dropped %d datagrams at the %s's full buffers",
				*side.Drops, name)
		}
		warn(side.Refused > 0, "the %s could not write %d echoes", name, side.Refused)
	}
}

// table is the report as text.
func (of *Report) table() string {
	var text strings.Builder
	line := func(name, form string, values ...any) {
		fmt.Fprintf(&text, "%-18s"+form+"\n", append([]any{name}, values...)...)
	}
	side := func(name string, of Side) {
		line(name, "%.2f us per echo; %.1f %% of a vCPU (%.0f to %.0f); %d MiB resident, %d peak",
			of.UsPerEcho, of.MeanPercent, of.MinPercent, of.MaxPercent, of.RSS>>20, of.PeakRSS>>20)
	}
	percentiles := func(name string, of Latency) {
		line(name, "p50 %s, p99 %s, max %s", ms(of.P50), ms(of.P99), ms(of.Max))
	}
	shape := of.Shape
	line("transport", "%s of %s", of.Stack, of.Version)
	line("connections", "%d, %g per second", shape.Connections, shape.ConnectRate)
	line("streams on each", "%d, %g per second", shape.Streams, shape.OpenRate)
	line("a stream writes", "%d bytes every %g s", of.Block, of.Period)
	line("measured", "%.1f s with all streams open", of.Seconds)
	line("echoes", "%.0f per second of %.0f due, %d wrong", of.EchoRate, of.DueRate, of.Wrong)
	line("not in time", "%d of %d", of.Due-of.Right-of.Refused, of.Due)
	line("refused writes", "%d", of.Refused)
	side("server", of.Server)
	side("client", of.Client)
	percentiles("round trip", of.RoundTrip)
	percentiles("written late by", of.Behind)
	percentiles("time to connect", of.Connect)
	for _, example := range of.Examples {
		line("wrong", "%s", example)
	}
	for _, warning := range of.Warnings {
		line("warning", "%s", warning)
	}
	return text.String()
}

func ms(us float64) string { return fmt.Sprintf("%.3f ms", us/1e3) }
