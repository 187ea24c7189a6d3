/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A driver for xdfs in C: it rotates the printable characters of ASCII, which hides nothing from
 * anybody. Its attribute `by` is the distance; its control `bytes` counts what was decoded.
 */
#include "xdfs_xio_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = '!', COUNT = 94 };

/* One end of a channel. */
struct rot47 {
    unsigned by;
    unsigned long long decoded;
};

/* The distance that a text names; 0 if it names none. */
static unsigned distance(const char *text)
{
    unsigned by = 0;
    size_t length = strlen(text);

    if (length < 1 || length > 2)
        return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        by = by * 10 + (unsigned)(*text - '0');
    }
    return by < COUNT ? by : 0;
}

static int32_t check(const char *attribute, const char *value)
{
    (void)attribute; /* there is one */
    return distance(value) ? XDFS_XIO_OK : XDFS_XIO_FAILED;
}

static int32_t open_channel(const struct xdfs_xio_setting *settings, size_t count, int32_t end,
                            void **channel, char *message)
{
    struct rot47 *self = malloc(sizeof *self);

    (void)end; /* both ends are alike */
    if (!self) {
        snprintf(message, XDFS_XIO_TEXT_BYTES, "no memory for a channel");
        return XDFS_XIO_NO_MEMORY;
    }
    self->by = COUNT / 2;
    self->decoded = 0;
    for (size_t i = 0; i < count; i++)
        self->by = distance(settings[i].value);
    *channel = self;
    return XDFS_XIO_OK;
}

static void release(void *channel)
{
    free(channel);
}

/* Rotates as many bytes as fit. */
static size_t rotate(unsigned by, const uint8_t *from, size_t length, uint8_t *to, size_t room)
{
    size_t n = length < room ? length : room;

    for (size_t i = 0; i < n; i++) {
        unsigned place = from[i] - (unsigned)FIRST;
        to[i] = place < COUNT ? (uint8_t)(FIRST + (place + by) % COUNT) : from[i];
    }
    return n;
}

static int32_t encode(void *channel, const uint8_t *content, size_t length, uint8_t *out,
                      size_t room, struct xdfs_xio_moved *moved, char *message)
{
    struct rot47 *self = channel;

    (void)message; /* it can't fail */
    moved->used = moved->filled = rotate(self->by, content, length, out, room);
    return XDFS_XIO_OK;
}

static int32_t decode(void *channel, const uint8_t *encoded, size_t length, uint8_t *content,
                      size_t room, struct xdfs_xio_moved *moved, char *message)
{
    struct rot47 *self = channel;

    (void)message;
    moved->used = moved->filled = rotate(COUNT - self->by, encoded, length, content, room);
    self->decoded += moved->used;
    return XDFS_XIO_OK;
}

static int32_t control(void *channel, size_t index, char *value)
{
    struct rot47 *self = channel;

    (void)index;
    snprintf(value, XDFS_XIO_TEXT_BYTES, "%llu", self->decoded);
    return XDFS_XIO_OK;
}

static const struct xdfs_xio_attribute attributes[] = {{"by", "a number from 1 to 93"}};
static const char *const controls[] = {"bytes"};

static const struct xdfs_xio_driver driver = {
    .version = XDFS_XIO_VERSION,
    .size = sizeof driver,
    .role = XDFS_XIO_TRANSFORM,
    .needs = XDFS_XIO_ORDER,
    .name = "rot47",
    .attributes = attributes,
    .attribute_count = 1,
    .controls = controls,
    .control_count = 1,
    .check = check,
    .open = open_channel,
    .release = release,
    .encode = encode,
    .decode = decode,
    .control = control,
};

const struct xdfs_xio_driver *xdfs_xio_driver(void)
{
    return &driver;
}
