/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Transmits frames of a client: the program is run on a frame of the kernel (BPF_PROG_TEST_RUN with
 * BPF_F_TEST_XDP_LIVE_FRAMES), writes the next frame of `frames` over it, and transmits it.
 */
#include "frame.h"

#define FRAMES 256

/* crates/net/src/xdp/live.rs maps them. */
struct stored {
	__u32 len;
	__u8 bytes[1532];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FRAMES);
	__type(key, __u32);
	__type(value, struct stored);
} frames SEC(".maps");

/* The number of the next frame. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

SEC("xdp")
int transmit(struct xdp_md *context)
{
	__u32 first = 0, *number = bpf_map_lookup_elem(&next, &first);
	struct stored *stored;
	__u32 len;

	if (!number)
		return XDP_ABORTED;
	stored = bpf_map_lookup_elem(&frames, number);
	if (!stored)
		return XDP_ABORTED;
	++*number;
	len = stored->len;
	if (len < sizeof(struct ethhdr) || len > sizeof(stored->bytes) ||
	    bpf_xdp_adjust_tail(context, (int)len - (int)bpf_xdp_get_buff_len(context)) ||
	    bpf_xdp_store_bytes(context, 0, stored->bytes, len))
		return XDP_ABORTED;
	return XDP_TX;
}

char _license[] SEC("license") = "Dual MIT/GPL";
