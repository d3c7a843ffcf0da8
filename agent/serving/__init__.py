"""Others' agents at our tools: the Model Context Protocol (MCP) server behind `kernelwright serve`."""
