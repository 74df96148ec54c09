/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Transmits frames of a client: the program is run on a frame of the kernel (BPF_PROG_TEST_RUN with
 * BPF_F_TEST_XDP_LIVE_FRAMES), writes the next frame of `frames` over it, and transmits it. It is
 * attached to the loopback device, whose frames it passes (crates/net/src/xdp/live.rs).
 */
#include "frame.h"

/* Frames of a queue's batch, and queues. */
#define FRAMES 256
#define QUEUES 16
/* The index of the loopback device in each network namespace. */
#define LOOPBACK 1

/* crates/net/src/xdp/live.rs maps them. The frame that the program is run on begins with a queue. */
struct stored {
	__u32 len;
	__u8 bytes[1532];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FRAMES * QUEUES);
	__type(key, __u32);
	__type(value, struct stored);
} frames SEC(".maps");

/* The next frame of each queue: an index of `frames`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u64);
} next SEC(".maps");

SEC("xdp")
int transmit(struct xdp_md *context)
{
	__u32 queue, number, len;
	struct stored *stored;
	__u64 *index;

	if (context->ingress_ifindex == LOOPBACK)
		return XDP_PASS;
	/* Its rx_queue_index is 0, whichever queue was asked for. */
	if (bpf_xdp_load_bytes(context, 0, &queue, sizeof(queue)))
		return XDP_ABORTED;
	index = bpf_map_lookup_elem(&next, &queue);
	if (!index)
		return XDP_ABORTED;
	number = (*index)++;
	stored = bpf_map_lookup_elem(&frames, &number);
	if (!stored)
		return XDP_ABORTED;
	len = stored->len;
	if (len < sizeof(struct ethhdr) || len > sizeof(stored->bytes) ||
	    bpf_xdp_adjust_tail(context, (int)len - (int)bpf_xdp_get_buff_len(context)) ||
	    bpf_xdp_store_bytes(context, 0, stored->bytes, len))
		return XDP_ABORTED;
	return XDP_TX;
}

char _license[] SEC("license") = "Dual MIT/GPL";
