__version__ = "0.1.0"
from .desk import fetch as __getattr__, offered as __dir__  # names are fetched when first asked for: nbs/desk.ipynb
