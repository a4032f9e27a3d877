/* Open vSwitch's packets, for the test that compares them with Overbank's. */
#include "../ovs/frame.h"

void peers_write_frame(uint8_t *frame, uint32_t id, uint32_t classes)
{
	write_frame(frame, id, classes);
}
