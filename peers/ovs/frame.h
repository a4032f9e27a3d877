/* Frames: of a flow, as crates/kit/src/traffic.rs makes it, or of a list. Tests of this crate compare
 * them with those of the Rust side. */
#ifndef OVERBANK_FRAME_H
#define OVERBANK_FRAME_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

#define FRAME_LEN 60

static inline uint64_t split_mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Bits 0 to 7 of `classes` are those of the destination. The rest are those of the source; 0: no rule
 * looks at it. */
static inline void write_frame(uint8_t *frame, uint32_t id, uint32_t classes)
{
	static const uint8_t template[FRAME_LEN] = {
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,           /* Ethernet */
		0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, [38] = 0, [39] = 26 /* IPv4, UDP */
	};
	uint64_t state = 0x1234567 * 0x9e3779b97f4a7c15 + id;
	uint64_t a = split_mix(&state), b = split_mix(&state), c = split_mix(&state);
	uint32_t class = (uint32_t)(a >> 32) % (classes & 0xff), low = UINT32_MAX >> (class + 1);
	uint32_t src = b, dst = ~(low << 1 | 1) | ((uint32_t)c & low);
	uint16_t sport = b >> 32, dport = b >> 48;

	sport = sport ? sport : 1;
	dport = dport ? dport : 1;
	if (classes >> 8) {
		low = UINT32_MAX >> ((sport ^ dport) % (classes >> 8) + 1);
		src = ~(low << 1 | 1) | (src & low);
	}
	uint32_t sum = 0x4500 + 46 + 0x4011 + (src >> 16) + (src & 0xffff) + (dst >> 16) + (dst & 0xffff);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	uint16_t check = htons((uint16_t)~sum);
	src = htonl(src);
	dst = htonl(dst);
	sport = htons(sport);
	dport = htons(dport);
	memcpy(frame, template, FRAME_LEN);
	memcpy(frame + 24, &check, 2);
	memcpy(frame + 26, &src, 4);
	memcpy(frame + 30, &dst, 4);
	memcpy(frame + 34, &sport, 2);
	memcpy(frame + 36, &dport, 2);
}

/* In a sequence of listed frames: the next frame of the attack. */
#define NEXT_OF_ATTACK UINT32_MAX

/* Frames as they are: those of others, which ids count from 0, then those of an attack. */
struct listed {
	const uint8_t (*frames)[FRAME_LEN];
	uint32_t others, attack, next;
};

static inline void write_listed(struct listed *l, uint8_t *frame, uint32_t id)
{
	if (id == NEXT_OF_ATTACK) {
		id = l->others + l->next;
		l->next = l->next + 1 == l->attack ? 0 : l->next + 1;
	}
	memcpy(frame, l->frames[id], FRAME_LEN);
}

/* Frames of a gateway's sessions: a template with two numbers that are its bases and the session, and
 * the checksum of an IPv4 header. In host order, as in the file. */
#define TEMPLATE_MAX 256

struct sessions {
	uint32_t len, header, at[2], base[2];
	uint8_t frame[TEMPLATE_MAX];
};

static inline void write_session(const struct sessions *s, uint8_t *frame, uint32_t id)
{
	uint32_t sum = 0;

	memcpy(frame, s->frame, s->len);
	for (int i = 0; i < 2; i++) {
		uint32_t number = htonl(s->base[i] + id);
		memcpy(frame + s->at[i], &number, 4);
	}
	memset(frame + s->header + 10, 0, 2);
	for (int i = 0; i < 20; i += 2) {
		uint16_t word;
		memcpy(&word, frame + s->header + i, 2);
		sum += word;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	uint16_t check = ~(uint16_t)((sum & 0xffff) + (sum >> 16));
	memcpy(frame + s->header + 10, &check, 2);
}

#endif
