package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	tpt "github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	libp2pwebrtc "github.com/libp2p/go-libp2p/p2p/transport/webrtc"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"
)

// Bytes of the receive buffer of WebRTC's server, as onrush-load has them.
const receiveBuffer = 16 << 20

// Where each transport listens. A QUIC transport is lent for all addresses only.
var listen = map[string]string{
	"tcp":    "/ip4/127.0.0.1/tcp/0",
	"quic":   "/ip4/0.0.0.0/udp/0/quic-v1",
	"webrtc": "/ip4/127.0.0.1/udp/0/webrtc-direct",
}

var unlimited = &network.NullResourceManager{}

// newTransport returns a transport that accepts this many streams per connection.
func newTransport(stack string, key crypto.PrivKey, streams int) (tpt.Transport, error) {
	switch stack {
	case "tcp":
		muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}}
		secure, err := noise.New(noise.ID, key, muxers)
		if err != nil {
			return nil, err
		}
		upgrade, err := upgrader.New([]sec.SecureTransport{secure}, muxers, nil, unlimited, nil)
		if err != nil {
			return nil, err
		}
		return tcp.NewTCPTransport(upgrade, unlimited, nil)
	case "quic":
		var reset quic.StatelessResetKey
		connections, err := quicreuse.NewConnManager(reset, quic.TokenGeneratorKey{})
		if err != nil {
			return nil, err
		}
		socket, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return nil, err
		}
		lent := manyStreams{&quic.Transport{Conn: socket}, int64(streams)}
		if _, err := connections.LendTransport("udp4", lent, socket); err != nil {
			return nil, err
		}
		return libp2pquic.NewTransport(key, connections, nil, nil, unlimited)
	default:
		return libp2pwebrtc.New(key, nil, nil, unlimited, listenUDP)
	}
}

// manyStreams is a QUIC transport whose listeners permit this many streams per connection.
type manyStreams struct {
	*quic.Transport
	streams int64
}

func (of manyStreams) Listen(tls *tls.Config, c *quic.Config) (quicreuse.QUICListener, error) {
	c = c.Clone()
	c.MaxIncomingStreams = of.streams
	return of.Transport.Listen(tls, c)
}

func listenUDP(network string, address *net.UDPAddr) (net.PacketConn, error) {
	socket, err := net.ListenUDP(network, address)
	if err != nil {
		return nil, err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Beyond net.core.rmem_max, where the process has the right.
	force := func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	}
	if raw.Control(force) != nil || err != nil {
		err = socket.SetReadBuffer(receiveBuffer)
	}
	return socket, err
}

// Messages of the server, as lines of JSON: where it listens and who it is, then what it counted.
type (
	ready struct {
		Address string `json:"address"`
		Peer    string `json:"peer"`
	}
	finished struct {
		Refused uint64 `json:"refused"`
	}
)

// serve returns to each stream what it receives from it, until the client sends a line or ends.
func serve(stack string, streams int) error {
	key, public, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return err
	}
	transport, err := newTransport(stack, key, streams)
	if err != nil {
		return err
	}
	listener, err := transport.Listen(ma.StringCast(listen[stack]))
	if err != nil {
		return err
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		return err
	}
	address := strings.Replace(listener.Multiaddr().String(), "0.0.0.0", "127.0.0.1", 1)
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(ready{address, id.String()}); err != nil {
		return err
	}
	var refused atomic.Uint64
	go accept(listener, &refused)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil
	}
	return out.Encode(finished{refused.Load()})
}

func accept(listener tpt.Listener, refused *atomic.Uint64) {
	streams := func(connection tpt.CapableConn) {
		for {
			stream, err := connection.AcceptStream()
			if err != nil {
				return
			}
			go echo(stream, refused)
		}
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go streams(connection)
	}
}

func echo(stream network.MuxedStream, refused *atomic.Uint64) {
	var block [blockSize]byte
	for {
		if _, err := io.ReadFull(stream, block[:]); err != nil {
			return
		}
		if _, err := stream.Write(block[:]); err != nil {
			refused.Add(1)
		}
	}
}

// dialer returns a function that establishes a connection to the server.
func dialer(stack string, to ready) (func(context.Context) (tpt.CapableConn, error), error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(stack, key, 1)
	if err != nil {
		return nil, err
	}
	address, err := ma.NewMultiaddr(to.Address)
	id, invalid := peer.Decode(to.Peer)
	return func(ctx context.Context) (tpt.CapableConn, error) {
		return transport.Dial(ctx, address, id)
	}, errors.Join(err, invalid)
}
