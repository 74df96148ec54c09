/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) of an address, as the tracker's connection ids need it. */
#ifndef ONRUSH_SIPHASH_H
#define ONRUSH_SIPHASH_H

#include "../../net/bpf/frame.h"

struct key {
	__u64 k0;
	__u64 k1;
};

struct sip {
	__u64 a, b, c, d;
};

inline_function __u64 rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

inline_function void sip_round(struct sip *sip)
{
	sip->a += sip->b;
	sip->b = rotate(sip->b, 13) ^ sip->a;
	sip->a = rotate(sip->a, 32);
	sip->c += sip->d;
	sip->d = rotate(sip->d, 16) ^ sip->c;
	sip->a += sip->d;
	sip->d = rotate(sip->d, 21) ^ sip->a;
	sip->c += sip->b;
	sip->b = rotate(sip->b, 17) ^ sip->c;
	sip->c = rotate(sip->c, 32);
}

inline_function void sip_word(struct sip *sip, __u64 word)
{
	sip->d ^= word;
	sip_round(sip);
	sip_round(sip);
	sip->a ^= word;
}

/* The hash of an address: 4 bytes of an IPv4 address, 16 of an IPv6 one. */
inline_function __u64 hash_address(const struct key *key, struct address address, int is_v4)
{
	struct sip sip = {
		key->k0 ^ 0x736f6d6570736575,
		key->k1 ^ 0x646f72616e646f6d,
		key->k0 ^ 0x6c7967656e657261,
		key->k1 ^ 0x7465646279746573,
	};

	/* Bytes in the order of the wire are little-endian words here, as BPF runs on such hosts. */
	if (is_v4) {
		sip_word(&sip, (__u64)4 << 56 | address.words[3]);
	} else {
		sip_word(&sip, (__u64)address.words[1] << 32 | address.words[0]);
		sip_word(&sip, (__u64)address.words[3] << 32 | address.words[2]);
		sip_word(&sip, (__u64)16 << 56);
	}
	sip.c ^= 0xff;
	sip_round(&sip);
	sip_round(&sip);
	sip_round(&sip);
	sip_round(&sip);
	return sip.a ^ sip.b ^ sip.c ^ sip.d;
}

#endif
