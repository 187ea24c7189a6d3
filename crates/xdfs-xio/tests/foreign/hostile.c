/* Drivers that break the interface: in their table, by macros, or in their calls, by the attribute
 * `mode`. Without a mode it passes bytes on. */
#include "xdfs_xio_driver.h"

#include <stdlib.h>
#include <string.h>

#ifndef TABLE
#define TABLE &driver
#endif
#ifndef FIELDS
#define FIELDS
#endif
#ifndef ATTRIBUTES
#define ATTRIBUTES {"mode", "a word"}
#endif
#ifndef CONTROLS
#define CONTROLS "text"
#endif

#ifdef UNRESOLVED
void nobody_defines_this(void);
void (*kept)(void) = nobody_defines_this;
#endif

static int is(const char *mode, const char *name)
{
    return strcmp(mode, name) == 0;
}

static int32_t check(const char *attribute, const char *value)
{
    (void)attribute;
    return is(value, "refused") ? XDFS_XIO_FAILED : XDFS_XIO_OK;
}

static int32_t open_channel(const struct xdfs_xio_setting *settings, size_t count, int32_t end,
                            void **channel, char *message)
{
    const char *mode = count ? settings[0].value : "";
    size_t length = strlen(mode) + 1;

    (void)end;
    if (is(mode, "open_fails")) {
        strcpy(message, "nothing is \033[31mright\nhere");
        return XDFS_XIO_UNSUPPORTED;
    }
    *channel = malloc(length);
    memcpy(*channel, mode, length);
    return XDFS_XIO_OK;
}

static int32_t is_open(void *mode)
{
    return !is(mode, "never_open");
}

static int32_t pass(const char *mode, const char *prefix, const uint8_t *from, size_t length,
                    uint8_t *to, size_t room, struct xdfs_xio_moved *moved, char *message)
{
    size_t n = length < room ? length : room;
    size_t prefixed = strlen(prefix);

    if (n)
        memcpy(to, from, n);
    moved->used = moved->filled = n;
    if (strncmp(mode, prefix, prefixed) != 0)
        return XDFS_XIO_OK;
    mode += prefixed;
    if (is(mode, "used"))
        moved->used = length + 1;
    else if (is(mode, "filled"))
        moved->filled = room + 1;
    else if (is(mode, "huge"))
        moved->used = moved->filled = SIZE_MAX;
    else if (is(mode, "stuck"))
        moved->used = moved->filled = 0;
    else if (is(mode, "grows"))
        moved->used = 0;
    else if (is(mode, "fails")) {
        memset(message, 'x', XDFS_XIO_TEXT_BYTES); /* without a NUL */
        return XDFS_XIO_INVALID_DATA;
    } else if (is(mode, "code"))
        return -77;
    else if (is(mode, "bytewise") && n) {
        moved->used = moved->filled = 1;
    }
    return XDFS_XIO_OK;
}

static int32_t encode(void *mode, const uint8_t *content, size_t length, uint8_t *out, size_t room,
                      struct xdfs_xio_moved *moved, char *message)
{
    return pass(mode, "encode_", content, length, out, room, moved, message);
}

static int32_t decode(void *mode, const uint8_t *encoded, size_t length, uint8_t *content,
                      size_t room, struct xdfs_xio_moved *moved, char *message)
{
    if (is(mode, "never_open")) {
        moved->used = length;
        return XDFS_XIO_OK;
    }
    return pass(mode, "decode_", encoded, length, content, room, moved, message);
}

static int32_t close_channel(void *mode, uint8_t *out, size_t room, size_t *filled, char *message)
{
    (void)out, (void)message;
    *filled = is(mode, "close_filled") ? room + 1 : 0;
    return XDFS_XIO_OK;
}

static int32_t control(void *mode, size_t index, char *value)
{
    (void)index;
    if (is(mode, "control_fails"))
        return XDFS_XIO_FAILED;
    memset(value, is(mode, "control_bytes") ? 0xff : 'y', XDFS_XIO_TEXT_BYTES);
    return XDFS_XIO_OK;
}

static const struct xdfs_xio_attribute attributes[] = {ATTRIBUTES};
static const char *const controls[] = {CONTROLS};

#pragma GCC diagnostic ignored "-Woverride-init"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
static const struct xdfs_xio_driver driver = {
    .version = XDFS_XIO_VERSION,
    .size = sizeof driver,
    .role = XDFS_XIO_TRANSFORM,
    .needs = XDFS_XIO_ORDER,
    .name = "hostile",
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof *attributes,
    .controls = controls,
    .control_count = sizeof controls / sizeof *controls,
    .check = check,
    .open = open_channel,
    .release = free,
    .is_open = is_open,
    .encode = encode,
    .decode = decode,
    .close = close_channel,
    .control = control,
    FIELDS
};

#define SYMBOL xdfs_xio_driver
#ifdef UNEXPORTED
const struct xdfs_xio_driver *another_name(void);
#undef SYMBOL
#define SYMBOL another_name
#endif
const struct xdfs_xio_driver *SYMBOL(void)
{
    (void)&driver;
    return TABLE;
}
