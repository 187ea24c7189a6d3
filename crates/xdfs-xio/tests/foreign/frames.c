/* A driver that uses all of the interface: an opening exchange of `turns` greetings of each end, each
 * after one of the other's, where the initiator begins; frames of up to `most` bytes; and an end of
 * content. */
#include "xdfs_xio_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELLO[] = "hello"; /* with its NUL */

struct frames {
    int most, turns;
    int initiator, ended;
    int said, heard;    /* greetings */
    size_t heard_bytes; /* of one greeting */
    size_t left;        /* of the frame that is being decoded */
};

static int32_t check(const char *attribute, const char *value)
{
    int number = atoi(value);
    int max = strcmp(attribute, "most") == 0 ? 60000 : 9;

    return number >= 1 && number <= max ? XDFS_XIO_OK : XDFS_XIO_FAILED;
}

static int32_t open_channel(const struct xdfs_xio_setting *settings, size_t count, int32_t end,
                            void **channel, char *message)
{
    struct frames *self = calloc(1, sizeof *self);

    (void)message;
    if (!self)
        return XDFS_XIO_NO_MEMORY;
    self->most = 1000;
    self->turns = 1;
    for (size_t i = 0; i < count; i++) {
        int *option = strcmp(settings[i].name, "most") == 0 ? &self->most : &self->turns;

        *option = atoi(settings[i].value);
    }
    self->initiator = end == XDFS_XIO_INITIATOR;
    *channel = self;
    return XDFS_XIO_OK;
}

static int32_t is_open(void *channel)
{
    struct frames *self = channel;

    return self->said == self->turns && self->heard == self->turns;
}

static int32_t is_ended(void *channel)
{
    return ((struct frames *)channel)->ended;
}

static int32_t encode(void *channel, const uint8_t *content, size_t length, uint8_t *out,
                      size_t room, struct xdfs_xio_moved *moved, char *message)
{
    struct frames *self = channel;

    (void)message;
    if (!is_open(self)) {
        if (self->said < self->turns && self->said < self->heard + self->initiator) {
            memcpy(out, HELLO, sizeof HELLO);
            moved->filled = sizeof HELLO;
            self->said++;
        }
        return XDFS_XIO_OK;
    }
    while (length > 0 && room > 2) {
        size_t n = length < (size_t)self->most ? length : (size_t)self->most;

        n = n < room - 2 ? n : room - 2;
        out[0] = (uint8_t)(n >> 8);
        out[1] = (uint8_t)n;
        for (size_t i = 0; i < n; i++)
            out[2 + i] = content[i] ^ 0x55;
        content += n, length -= n, moved->used += n;
        out += n + 2, room -= n + 2, moved->filled += n + 2;
    }
    return XDFS_XIO_OK;
}

static int32_t decode(void *channel, const uint8_t *encoded, size_t length, uint8_t *content,
                      size_t room, struct xdfs_xio_moved *moved, char *message)
{
    struct frames *self = channel;

    while (length > 0 && !self->ended) {
        if (!is_open(self)) {
            if (self->heard == self->turns || self->heard + self->initiator > self->said)
                break; /* it is this end's turn */
            if (*encoded != (uint8_t)HELLO[self->heard_bytes]) {
                snprintf(message, XDFS_XIO_TEXT_BYTES, "that is no greeting");
                return XDFS_XIO_INVALID_DATA;
            }
            if (++self->heard_bytes == sizeof HELLO) {
                self->heard_bytes = 0;
                self->heard++;
            }
            encoded++, length--, moved->used++;
        } else if (self->left == 0) {
            if (length < 2)
                break;
            self->left = (size_t)encoded[0] << 8 | encoded[1];
            self->ended = self->left == 0;
            encoded += 2, length -= 2, moved->used += 2;
        } else {
            size_t n = self->left < length ? self->left : length;

            n = n < room ? n : room;
            if (n == 0)
                break;
            for (size_t i = 0; i < n; i++)
                content[i] = encoded[i] ^ 0x55;
            encoded += n, length -= n, moved->used += n;
            content += n, room -= n, moved->filled += n;
            self->left -= n;
        }
    }
    return XDFS_XIO_OK;
}

static int32_t end(void *channel, size_t held, char *message)
{
    (void)channel, (void)held;
    snprintf(message, XDFS_XIO_TEXT_BYTES, "the end of content is missing");
    return XDFS_XIO_UNEXPECTED_END;
}

static int32_t close_channel(void *channel, uint8_t *out, size_t room, size_t *filled,
                             char *message)
{
    (void)channel, (void)message;
    if (room < 2)
        return XDFS_XIO_FAILED;
    out[0] = out[1] = 0;
    *filled = 2;
    return XDFS_XIO_OK;
}

static int32_t control(void *channel, size_t index, char *value)
{
    struct frames *self = channel;

    snprintf(value, XDFS_XIO_TEXT_BYTES, "%zu", index ? self->left : (size_t)self->most);
    return XDFS_XIO_OK;
}

static const struct xdfs_xio_attribute attributes[] = {{"most", "1 to 60000"}, {"turns", "1 to 9"}};
static const char *const controls[] = {"most", "left"};

static const struct xdfs_xio_driver driver = {
    .version = XDFS_XIO_VERSION,
    .size = sizeof driver,
    .role = XDFS_XIO_TRANSFORM,
    .needs = XDFS_XIO_ORDER,
    .name = "frames",
    .attributes = attributes,
    .attribute_count = 2,
    .controls = controls,
    .control_count = 2,
    .check = check,
    .open = open_channel,
    .release = free,
    .is_open = is_open,
    .encode = encode,
    .decode = decode,
    .is_ended = is_ended,
    .end = end,
    .close = close_channel,
    .control = control,
};

const struct xdfs_xio_driver *xdfs_xio_driver(void)
{
    return &driver;
}
