"""Files of analysed repositories, below every engine: reading them, what they say, and where that is kept."""
