// Command libp2p is the reference for `onrush-load transport`: the same load, arguments and JSON,
// over the transports of go-libp2p. It has no --stack tls, --html and --signal.
//
// It uses the transports themselves (dial, listen, streams) without a host above them. A host keeps
// one connection to a peer, and its identify protocol and peer store would only add to the cost.
// Streams start without a negotiation of their protocol. network.NullResourceManager has no limits.
// All else is go-libp2p's default, with two exceptions in its favour: QUIC permits as many streams
// per connection as the load has (the default is 256), and WebRTC's server has a receive buffer
// of 16 MiB, as in onrush-load. A pinned process has GOMAXPROCS=1, as it sees one vCPU.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses, as those of onrush-load.
const (
	wrong    = 1
	unusable = 2
	noReply  = 3
	exceeded = 4
)

const (
	maxConnections = 500
	maxStreams     = 30_000
	// A client that runs on its vCPU has the vCPUs of both sides in this variable.
	pinned = "ONRUSH_LIBP2P_PINNED"
)

type options struct {
	stack   string
	shape   Shape
	seconds float64
	// The vCPUs of server and client: both or none.
	pin     []string
	maxLoss float64
	json    string
	serve   bool
}

func main() {
	options, err := parse()
	if err == nil && options.serve {
		err = serve(options.stack, options.shape.Streams)
	} else if err == nil {
		err = measure(options)
	}
	if err != nil {
		fail(unusable, err)
	}
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "libp2p:", err)
	os.Exit(status)
}

func measure(options options) error {
	report, err := transport(options)
	if err != nil {
		return err
	}
	if err := write(options.json, report); err != nil {
		return err
	}
	if report.Due > 0 && report.Right+report.Wrong == 0 {
		fail(noReply, errors.New("no echo came"))
	}
	if report.Wrong > 0 {
		os.Exit(wrong)
	}
	if missed := report.missedPercent(); missed > options.maxLoss {
		fail(exceeded, fmt.Errorf("%.3f %% of echoes did not come, more than --max-loss %v %%",
			missed, options.maxLoss))
	}
	return nil
}

// write prints the table, to standard error where standard output has the JSON.
func write(file string, report *Report) error {
	var table io.Writer = os.Stdout
	text, err := json.MarshalIndent(report, "", "  ")
	text = append(text, '\n')
	switch {
	case err != nil || file == "":
	case file == "-":
		table = os.Stderr
		_, err = os.Stdout.Write(text)
	default:
		err = os.WriteFile(file, text, 0o666)
	}
	_, printed := io.WriteString(table, report.table())
	return errors.Join(err, printed)
}

func parse() (of options, err error) {
	var preset, pin string
	var factor float64
	flag.StringVar(&of.stack, "stack", "", "the transport: tcp, quic or webrtc")
	flag.StringVar(&preset, "preset", "100x100", "connections x streams on each, or webtorrent")
	flag.Float64Var(&factor, "ramp-factor", 1, "establish connections and open streams faster")
	flag.Float64Var(&of.seconds, "seconds", 30, "seconds that are measured")
	flag.StringVar(&pin, "pin", "", "pin to vCPUs: `SERVER,CLIENT` (default: the first two)")
	flag.Float64Var(&of.maxLoss, "max-loss", 100, "exit with 4 if more percent do not come")
	flag.StringVar(&of.json, "json", "", "write the report as JSON to this `file`; - for stdout")
	flag.Bool("quiet", false, "no effect, as no progress is shown")
	flag.BoolVar(&of.serve, "serve", false, "be the server of the client at standard input")
	tell := flag.Bool("version", false, "print the version of go-libp2p")
	flag.Parse()
	if *tell {
		fmt.Println("libp2p", version())
		os.Exit(0)
	}
	of.shape, err = parsePreset(preset, factor)
	switch {
	case err != nil:
		return of, err
	case flag.NArg() > 0:
		return of, fmt.Errorf("unknown argument %s", flag.Arg(0))
	case !slices.Contains([]string{"tcp", "quic", "webrtc"}, of.stack):
		return of, errors.New("--stack takes tcp, quic or webrtc")
	case !(factor >= 1 && factor <= 1000):
		return of, errors.New("--ramp-factor is not between 1 and 1000")
	case !(of.seconds >= 0.5 && of.seconds <= 1e5):
		return of, errors.New("--seconds is not between 0.5 and 100000")
	case of.serve:
		return of, nil
	}
	of.pin, err = pinClient(pin)
	return of, err
}

// parsePreset returns a load that grows as the published one, factor times faster.
func parsePreset(preset string, factor float64) (of Shape, err error) {
	of = Shape{ConnectRate: factor, OpenRate: 10 * factor}
	if preset == "webtorrent" {
		of.Connections, of.Streams, of.ConnectRate = 500, 1, 50*factor
		return of, nil
	}
	if _, err := fmt.Sscanf(preset+"\n", "%dx%d\n", &of.Connections, &of.Streams); err != nil {
		return of, fmt.Errorf("--preset: %s is neither like 10x1000 nor webtorrent", preset)
	}
	// Of a large number of streams the product would overflow.
	tooMany := of.Connections > maxConnections || of.Streams > maxStreams || of.all() > maxStreams
	if tooMany || of.Connections < 1 || of.Streams < 1 {
		return of, fmt.Errorf("--preset: %s is not between 1x1 and %d connections, %d streams",
			preset, maxConnections, maxStreams)
	}
	return of, nil
}

// pinClient executes this program again on the client's vCPU, so that all of its threads are there.
// It returns the vCPUs: those named, or the first two where there are two.
func pinClient(named string) (pin []string, err error) {
	if done := os.Getenv(pinned); done != "" {
		return strings.Split(done, ","), nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var allowed []string
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			allowed = append(allowed, fmt.Sprint(cpu))
		}
	}
	isAllowed := func(cpu string) bool { return slices.Contains(allowed, cpu) }
	if pin = strings.Split(named, ","); named == "" && len(allowed) < 2 {
		return nil, nil
	} else if named == "" {
		pin = allowed[:2]
	} else if len(pin) != 2 || pin[0] == pin[1] || !isAllowed(pin[0]) || !isAllowed(pin[1]) {
		return nil, fmt.Errorf("--pin takes SERVER,CLIENT, two of the vCPUs %v", allowed)
	}
	both := pinned + "=" + strings.Join(pin, ",")
	command := exec.Command("taskset", append([]string{"-c", pin[1]}, os.Args...)...)
	if command.Err != nil {
		return nil, command.Err
	}
	return nil, syscall.Exec(command.Path, command.Args, append(os.Environ(), both))
}
