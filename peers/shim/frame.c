/* Open vSwitch's packets, for the test that compares them with Overbank's. */
#include "../ovs/frame.h"

void peers_write_frame(uint8_t *frame, uint32_t id, uint32_t classes)
{
	write_frame(frame, id, classes);
}

void peers_write_session(uint8_t *frame, uint32_t id, const struct sessions *sessions)
{
	write_session(sessions, frame, id);
}

/* Frame of an id in a list; `next` is the attack's. */
void peers_write_listed(uint8_t *frame, uint32_t id, const uint8_t (*frames)[FRAME_LEN], uint32_t others,
			uint32_t attack, uint32_t *next)
{
	struct listed listed = { frames, others, attack, *next };

	write_listed(&listed, frame, id);
	*next = listed.next;
}
