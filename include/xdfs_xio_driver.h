/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Drivers of xdfs in shared libraries: version 1 of the interface.
 *
 * A library exports one function, xdfs_xio_driver, which returns the table of one driver. The driver
 * is a transform: it turns the bytes of a channel into others on the way out (encode), and back on
 * the way in (decode). It does no input or output.
 *
 *     content --encode--> encoded bytes --the drivers below--> encoded bytes --decode--> content
 *
 * The library becomes a part of the process, with all of its rights. xdfs checks every length and
 * code that a driver returns, and refuses a table that can't be right. It can't check what a driver
 * does with memory: a write past the end of a buffer, a crash, an endless loop or a call of exit()
 * in the library happens to the process.
 *
 * Rules:
 *  - No function may unwind: an exception that leaves it ends the process.
 *  - Calls for one channel never overlap, but may come from different threads. All other calls may
 *    overlap: those for different channels, `check` and `open`.
 *  - Buffers belong to the caller, and are valid during the call only. Memory of a channel belongs
 *    to the driver, from `open` to `release`. A buffer of length 0 must not be accessed.
 *  - No function may block.
 *  - After a call that fails, only `release` is called for that channel.
 *  - The library is never unloaded.
 */
#ifndef XDFS_XIO_DRIVER_H
#define XDFS_XIO_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. */
#define XDFS_XIO_VERSION 1

/* Roles of a driver. */
#define XDFS_XIO_TRANSFORM 1

/* Results: 0, or why a function failed. */
#define XDFS_XIO_OK 0
#define XDFS_XIO_FAILED 1         /* any other reason */
#define XDFS_XIO_INVALID_DATA 2   /* the peer has sent invalid bytes */
#define XDFS_XIO_UNEXPECTED_END 3 /* the peer's bytes ended too early */
#define XDFS_XIO_UNSUPPORTED 4    /* not available on this system */
#define XDFS_XIO_NO_MEMORY 5

/* Properties, as bits. */
#define XDFS_XIO_ORDER 1u      /* all bytes arrive, once and in order */
#define XDFS_XIO_INTEGRITY 2u  /* every change in transit is detected */
#define XDFS_XIO_PROTECTION 4u /* nobody else can read the bytes (in `needs` only) */

/* Ends of a channel. */
#define XDFS_XIO_INITIATOR 0 /* the one that opens it */
#define XDFS_XIO_ACCEPTOR 1  /* the one that accepts it */

/* Bytes of a text that a driver returns, with the NUL at its end. It is in UTF-8. */
#define XDFS_XIO_TEXT_BYTES 256

/* The description of an attribute, which is set in the text of a stack: rot47:by=3. */
struct xdfs_xio_attribute {
    const char *name;  /* a lower case letter, then lower case letters, digits and '_' */
    const char *takes; /* the accepted values, for messages: "a number from 1 to 93" */
};

/* An attribute that is set. */
struct xdfs_xio_setting {
    const char *name;
    const char *value;
};

/* The results of `encode` and `decode`; both are 0 when the function is called. */
struct xdfs_xio_moved {
    size_t used;   /* bytes used of the first buffer */
    size_t filled; /* bytes written to the second buffer, from its front */
};

/* The table of a driver. It must be valid for as long as the process runs. Functions marked as
 * optional may be NULL. Wherever a function has a `message`, it may write a text to it: one line
 * that says why it failed. */
struct xdfs_xio_driver {
    uint32_t version; /* XDFS_XIO_VERSION */
    uint32_t size;    /* sizeof(struct xdfs_xio_driver) */
    uint32_t role;    /* XDFS_XIO_TRANSFORM */
    uint32_t gives;   /* properties that it adds to those from below */
    uint32_t needs;   /* properties that it needs from below */
    uint32_t reserved; /* 0 */

    /* Its name in the text of a stack: a lower case letter, then lower case letters, digits and
     * '_', 32 bytes at most. */
    const char *name;

    /* Its attributes, 64 at most. */
    const struct xdfs_xio_attribute *attributes;
    size_t attribute_count;

    /* The names of its controls, 64 at most: values of an open channel, for people and programs. */
    const char *const *controls;
    size_t control_count;

    /* Checks the value of an attribute when a stack is built: XDFS_XIO_OK if it is valid. Optional
     * if there are no attributes. */
    int32_t (*check)(const char *attribute, const char *value);

    /* Creates one end of a channel with these attributes. `*channel` is passed to all other
     * functions, and may stay NULL. On failure nothing is released. */
    int32_t (*open)(const struct xdfs_xio_setting *settings, size_t count, int32_t end,
                    void **channel, char *message);

    /* Frees a channel. */
    void (*release)(void *channel);

    /* Whether content can pass: not 0 once the opening exchange is over on this end, which has then
     * encoded its last message of it. It stays so. NULL if there is no such exchange. */
    int32_t (*is_open)(void *channel);

    /* Encodes bytes from the front of `content`. What isn't used is offered again, with more after
     * it. The peer must be able to decode all that was used from what was written until then: the
     * driver keeps nothing back. With room for 512 KiB or more, at least one byte must be used.
     * Before the channel is open, `content` is empty, and the next messages of the opening exchange
     * are written, if it is this end's turn. */
    int32_t (*encode)(void *channel, const uint8_t *content, size_t length, uint8_t *out,
                      size_t room, struct xdfs_xio_moved *moved, char *message);

    /* Decodes bytes from the front of `encoded` into `content`. What isn't used is offered again,
     * with more after it. If nothing is used and nothing is written, it waits for more. A unit that
     * can only be used as a whole may have up to 512 KiB. `length` may be 0: content that had no
     * room before can then be written. Before the channel is open, `room` is 0. */
    int32_t (*decode)(void *channel, const uint8_t *encoded, size_t length, uint8_t *content,
                      size_t room, struct xdfs_xio_moved *moved, char *message);

    /* Whether the peer's end of content was decoded: not 0, and it stays so. Optional. */
    int32_t (*is_ended)(void *channel);

    /* The encoded bytes have ended, with `held` bytes at their end that were not used: XDFS_XIO_OK
     * if that is an orderly end. Optional; without it, it is one if nothing is held. */
    int32_t (*end)(void *channel, size_t held, char *message);

    /* Writes the end of content of an open channel, with room for 512 KiB or more. Nothing is encoded
     * afterwards; decoding goes on. Optional. */
    int32_t (*close)(void *channel, uint8_t *out, size_t room, size_t *filled, char *message);

    /* Writes the present value of a control, by its index. Optional if there are none. */
    int32_t (*control)(void *channel, size_t index, char *value);
};

/* Returns the table of the driver. It is called once. */
#if defined(_WIN32)
__declspec(dllexport)
#elif defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct xdfs_xio_driver *xdfs_xio_driver(void);

#ifdef __cplusplus
}
#endif

#endif
