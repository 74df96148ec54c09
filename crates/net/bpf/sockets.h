/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * AF_XDP sockets of the interfaces' queues. crates/net/src/xdp/program.rs fills the maps.
 */
#ifndef ONRUSH_SOCKETS_H
#define ONRUSH_SOCKETS_H

#include "frame.h"

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The places of an interface's queues in `sockets`: that of queue 0, and their number. */
struct queues {
	__u32 first;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct queues);
} queues SEC(".maps");

/*
 * Redirects a frame to the socket of its queue. No other socket takes it: a frame of a queue without
 * one is passed.
 */
inline_function int to_socket(struct xdp_md *context)
{
	__u32 interface = context->ingress_ifindex, queue = context->rx_queue_index;
	const struct queues *own = bpf_map_lookup_elem(&queues, &interface);

	if (!own || queue >= own->count)
		return XDP_PASS;
	return bpf_redirect_map(&sockets, own->first + queue, XDP_PASS);
}

#endif
