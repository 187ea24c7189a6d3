//! Pictures as SVG and as PNG.
//!
//! SVG has its text as text. Pixels have a font of fixed size in the program, so that a picture
//! needs no fonts of the system.

use std::convert::Infallible;
use std::fmt;

use embedded_graphics::Drawable as _;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::ascii::{FONT_7X13, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::drawing::IntoDrawingArea as _;
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind,
};
use xdfs::{Code, Fault};

use super::plot::{SIZE, Surface, draw};

/// Font size in pixels from which text is a title.
const TITLE_PIXELS: f64 = 18.0;

/// The picture as SVG.
///
/// # Errors
/// It can't be drawn.
pub(super) fn svg(surface: &Surface) -> Result<Vec<u8>, Fault> {
    let mut text = String::new();
    draw(
        &SVGBackend::with_string(&mut text, SIZE).into_drawing_area(),
        surface,
    )
    .map_err(undrawn)?;
    Ok(text.into_bytes())
}

/// The picture as PNG.
///
/// # Errors
/// It can't be drawn.
pub(super) fn png(surface: &Surface) -> Result<Vec<u8>, Fault> {
    let (width, height) = SIZE;
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    let canvas = Canvas(BitMapBackend::with_buffer(&mut pixels, SIZE));
    draw(&canvas.into_drawing_area(), surface).map_err(undrawn)?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().map_err(undrawn)?;
    writer.write_image_data(&pixels).map_err(undrawn)?;
    writer.finish().map_err(undrawn)?;
    Ok(file)
}

fn undrawn(error: impl fmt::Display) -> Fault {
    Fault::new(Code::Internal, "draw the picture", error.to_string())
}

/// Pixels, with text in the fonts of this program.
struct Canvas<'a>(BitMapBackend<'a>);

type CanvasError<'a> = DrawingErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>;

impl<'a> DrawingBackend for Canvas<'a> {
    type ErrorType = <BitMapBackend<'a> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), CanvasError<'a>> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), CanvasError<'a>> {
        self.0.present()
    }

    fn draw_pixel(
        &mut self,
        point: BackendCoord,
        color: BackendColor,
    ) -> Result<(), CanvasError<'a>> {
        self.0.draw_pixel(point, color)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), CanvasError<'a>> {
        self.0.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), CanvasError<'a>> {
        let anchor = style.anchor();
        let layout = TextStyleBuilder::new()
            .alignment(match anchor.h_pos {
                HPos::Left => Alignment::Left,
                HPos::Center => Alignment::Center,
                HPos::Right => Alignment::Right,
            })
            .baseline(match anchor.v_pos {
                VPos::Top => Baseline::Top,
                VPos::Center => Baseline::Middle,
                VPos::Bottom => Baseline::Bottom,
            })
            .build();
        let mut ink = Ink {
            canvas: &mut self.0,
            color: style.color(),
        };
        let font = MonoTextStyle::new(font(style.size()), BinaryColor::On);
        let Ok(_) = Text::with_text_style(text, Point::new(x, y), font, layout).draw(&mut ink);
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), CanvasError<'a>> {
        let size = font(style.size()).character_size;
        let count = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        Ok((count.saturating_mul(size.width), size.height))
    }
}

fn font(pixels: f64) -> &'static MonoFont<'static> {
    match pixels >= TITLE_PIXELS {
        true => &FONT_10X20,
        false => &FONT_7X13,
    }
}

/// Draws the set pixels of characters in one colour.
struct Ink<'c, 'a> {
    canvas: &'c mut BitMapBackend<'a>,
    color: BackendColor,
}

impl OriginDimensions for Ink<'_, '_> {
    fn size(&self) -> Size {
        let (width, height) = self.canvas.get_size();
        Size::new(width, height)
    }
}

impl DrawTarget for Ink<'_, '_> {
    type Color = BinaryColor;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<BinaryColor>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(point, _) in pixels.into_iter().filter(|pixel| pixel.1.is_on()) {
            // What is outside of the picture is not drawn, and nothing else can fail.
            let _ = self.canvas.draw_pixel((point.x, point.y), self.color);
        }
        Ok(())
    }
}
