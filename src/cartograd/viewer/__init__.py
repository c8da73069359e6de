"""Looking at a map: the interactive page, its server, and the static picture."""

from cartograd.viewer.page import page_html as page_html
from cartograd.viewer.page import write_page as write_page
from cartograd.viewer.picture import plot as plot
from cartograd.viewer.server import PageServer as PageServer
from cartograd.viewer.server import serve as serve
from cartograd.viewer.show import View as View
from cartograd.viewer.show import view as view

__all__ = ["PageServer", "View", "page_html", "plot", "serve", "view", "write_page"]
